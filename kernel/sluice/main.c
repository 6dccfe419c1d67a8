// SPDX-License-Identifier: GPL-2.0
/* The device /dev/sluice: checks of every call before context.c executes it. */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "sluice.h"

struct sluice_counters sluice_counters;

/* ---- calls -------------------------------------------------------------------------------- */

static long do_info(struct sluice_context *c, void __user *arg)
{
	struct sluice_info *info = kzalloc(sizeof(*info), GFP_KERNEL);
	long rc;

	if (!info)
		return -ENOMEM;
	info->abi = SLUICE_ABI;
	info->channels = c->channels;
	info->slots = SLUICE_SLOTS;
	for (unsigned int i = 0; i < c->channels; i++)
		info->node[i] = sluice_channel_node(sluice_channel(i));
	if (c->channels)
		sluice_channel_driver(sluice_channel(0), info->driver, sizeof(info->driver));
	rc = copy_to_user(arg, info, sizeof(*info)) ? -EFAULT : 0;
	kfree(info);
	return rc;
}

static long do_attach(struct sluice_context *c, void __user *arg)
{
	struct sluice_attach a;
	long rc;

	if (copy_from_user(&a, arg, sizeof(a)))
		return -EFAULT;
	if (a.flags || a.channel >= c->channels || memchr_inv(a.zero, 0, sizeof(a.zero)))
		return -EINVAL;
	rc = sluice_context_attach(c, &a);
	if (rc)
		return rc;
	return copy_to_user(arg, &a, sizeof(a)) ? -EFAULT : 0;
}

static long do_enter(struct sluice_context *c, void __user *arg)
{
	struct sluice_enter __user *user = arg;
	struct sluice_enter e;
	long rc;

	if (copy_from_user(&e, arg, sizeof(e)))
		return -EFAULT;
	if (e.flags || e.zero || e.count > SLUICE_SLOTS)
		return -EINVAL;
	rc = sluice_context_enter(c, &e);
	return put_user(e.accepted, &user->accepted) ? -EFAULT : rc;
}

static long do_cancel(struct sluice_context *c, void __user *arg)
{
	struct sluice_cancel cancel;

	if (copy_from_user(&cancel, arg, sizeof(cancel)))
		return -EFAULT;
	sluice_context_cancel(c, cancel.from, cancel.bytes);
	return 0;
}

static long do_group(void __user *arg)
{
	struct sluice_group g;

	if (copy_from_user(&g, arg, sizeof(g)))
		return -EFAULT;
	return sluice_group_create(&g);
}

static long do_join(struct sluice_context *c, void __user *arg)
{
	struct sluice_join j;

	if (copy_from_user(&j, arg, sizeof(j)))
		return -EFAULT;
	return sluice_group_join(c, &j);
}

static long do_run(struct sluice_context *c, void __user *arg)
{
	struct sluice_run r;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	return sluice_run_start(c, &r);
}

static long do_drop(struct sluice_context *c, void __user *arg)
{
	struct sluice_drop d;

	if (copy_from_user(&d, arg, sizeof(d)))
		return -EFAULT;
	sluice_region_drop(c, d.address, d.bytes);
	return 0;
}

static long do_stat(void __user *arg)
{
	struct sluice_stat s = { 0 };

#define GET(name) s.name = atomic64_read(&sluice_counters.name)
	GET(pins), GET(unpins), GET(regions), GET(hits), GET(stale), GET(evicted), GET(enters);
	GET(copies), GET(cancelled), GET(descriptors), GET(callbacks), GET(dma_bytes);
	GET(cpu_bytes), GET(contexts), GET(runs), GET(messages), GET(onload_bytes);
#undef GET
	return copy_to_user(arg, &s, sizeof(s)) ? -EFAULT : 0;
}

static long execute(struct sluice_context *c, unsigned int call, void __user *arg)
{
	switch (call) {
	case SLUICE_IOC_INFO:
		return do_info(c, arg);
	case SLUICE_IOC_ATTACH:
		return do_attach(c, arg);
	case SLUICE_IOC_ENTER:
		return c->channel ? do_enter(c, arg) : -ENXIO;
	case SLUICE_IOC_CANCEL:
		return do_cancel(c, arg);
	case SLUICE_IOC_RETIRE:
		return sluice_context_retire(c);
	case SLUICE_IOC_DROP:
		return do_drop(c, arg);
	case SLUICE_IOC_STAT:
		return do_stat(arg);
	case SLUICE_IOC_GROUP:
		return do_group(arg);
	case SLUICE_IOC_JOIN:
		return do_join(c, arg);
	case SLUICE_IOC_RUN:
		return do_run(c, arg);
	}
	return -ENOTTY;
}

static long sluice_ioctl(struct file *file, unsigned int call, unsigned long number)
{
	struct sluice_context *c = file->private_data;
	long rc;

	if (current->mm != c->mm)
		return -EPERM;
	if (mutex_lock_killable(&c->enter))
		return -EINTR;
	rc = execute(c, call, (void __user *)number);
	mutex_unlock(&c->enter);
	return rc;
}

/* ---- the file ----------------------------------------------------------------------------- */

static int sluice_open(struct inode *inode, struct file *file)
{
	struct sluice_context *c;

	if (!current->mm)
		return -EPERM;
	c = sluice_context_new();
	if (!c)
		return -ENOMEM;
	c->channels = sluice_channels_get();
	file->private_data = c;
	return nonseekable_open(inode, file);
}

static int sluice_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct sluice_context *c = file->private_data;

	if (current->mm != c->mm)
		return -EPERM;
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != PAGE_ALIGN(SLUICE_RECORDS_BYTES))
		return -EINVAL;
	return remap_vmalloc_range(vma, c->records, 0);
}

static int sluice_release(struct inode *inode, struct file *file)
{
	sluice_context_close(file->private_data);
	return 0;
}

static const struct file_operations sluice_fops = {
	.owner = THIS_MODULE,
	.open = sluice_open,
	.release = sluice_release,
	.mmap = sluice_mmap,
	.unlocked_ioctl = sluice_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice sluice_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "sluice",
	.fops = &sluice_fops,
	.mode = 0660,
};

static int __init sluice_init(void)
{
	int rc = sluice_context_init();

	if (rc)
		return rc;
	rc = sluice_group_init();
	if (rc)
		goto fail;
	rc = misc_register(&sluice_device);
	if (!rc)
		return 0;
	sluice_group_exit();
fail:
	sluice_context_exit();
	return rc;
}

static void __exit sluice_exit(void)
{
	misc_deregister(&sluice_device);
	sluice_context_exit();
	sluice_group_exit();
}

module_init(sluice_init);
module_exit(sluice_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Memory copies of Sluice by dmaengine channels");
MODULE_VERSION("0.1");
