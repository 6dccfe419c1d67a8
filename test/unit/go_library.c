/* SPDX-License-Identifier: BSD-3-Clause */
/* A library that has the note of Go's linker. */
__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
	".long 4, 3, 4\n"
	".asciz \"Go\\0\"\n"
	".ascii \"id.\\0\"\n"
	".popsection\n");
