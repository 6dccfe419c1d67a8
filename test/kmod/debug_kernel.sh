#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# debug_kernel.sh FOLDER: builds a small kernel with KASAN, lockdep, DMA_API_DEBUG and kmemleak from Debian's
# linux-source-6.12 (apt-get install linux-source-6.12 flex bison bc libelf-dev libssl-dev) into FOLDER, for
# KMOD_KERNELS=FOLDER ./dev check kmod. After an interruption it goes on where it was.
set -eu
out=$(mkdir -p "$1" && cd "$1" && pwd)
source=$out/linux-source-6.12
[ -e "$source" ] || tar -C "$out" -xf "${LINUX_SOURCE:-/usr/src/linux-source-6.12.tar.xz}"
if [ ! -e "$out/build/.config.made" ]; then
	# nothing else in so small a kernel selects it
	sed -i '/^config MMU_NOTIFIER/,/bool/s/bool$/bool "MMU notifiers"/' "$source/mm/Kconfig"
	make -s -C "$source" O="$out/build" tinyconfig
	for option in 64BIT SMP MULTIUSER PRINTK TTY SERIAL_8250 SERIAL_8250_CONSOLE BLK_DEV_INITRD RD_GZIP \
		BINFMT_ELF BINFMT_SCRIPT PROC_FS SYSFS TMPFS SHMEM DEVTMPFS MEMFD_CREATE FUTEX POSIX_TIMERS \
		HIGH_RES_TIMERS MODULES MODULE_UNLOAD DMADEVICES ACPI PCI MMU_NOTIFIER ADVISE_SYSCALLS BUG \
		FILE_LOCKING DEBUG_KERNEL DEBUG_BUGVERBOSE KALLSYMS STACKTRACE KASAN KASAN_VMALLOC \
		PROVE_LOCKING DEBUG_ATOMIC_SLEEP DEBUG_LIST DMA_API_DEBUG DEBUG_KMEMLEAK DEBUG_FS \
		DETECT_HUNG_TASK TRANSPARENT_HUGEPAGE COMPACTION MIGRATION \
		FAULT_INJECTION FAILSLAB FAIL_PAGE_ALLOC FAULT_INJECTION_USERCOPY FAULT_INJECTION_DEBUG_FS; do
		echo "CONFIG_$option=y"
	done >"$out/fragment"
	printf 'CONFIG_%s=n\n' SLUB_TINY VT CC_OPTIMIZE_FOR_SIZE >>"$out/fragment"
	echo 'CONFIG_LOCALVERSION="-debug"' >>"$out/fragment"
	(cd "$source" &&
		scripts/kconfig/merge_config.sh -m -O "$out/build" "$out/build/.config" "$out/fragment")
	make -s -C "$source" O="$out/build" olddefconfig
	for option in KASAN PROVE_LOCKING DMA_API_DEBUG DEBUG_KMEMLEAK MMU_NOTIFIER DMA_ENGINE SHMEM SMP \
		FAILSLAB FAULT_INJECTION_DEBUG_FS; do
		grep -q "^CONFIG_$option=y" "$out/build/.config" || { echo "no $option"; exit 1; }
	done
	touch "$out/build/.config.made"
fi
make -s -j"$(nproc)" -C "$source" O="$out/build" bzImage modules
version=$(cat "$out/build/include/config/kernel.release")
mkdir -p "$out/boot" "$out/lib/modules/$version/kernel"
cp "$out/build/arch/x86/boot/bzImage" "$out/boot/vmlinuz-$version"
ln -sfn "$out/build" "$out/lib/modules/$version/build"
echo "$version: KMOD_KERNELS=$out"
