/* SPDX-License-Identifier: BSD-3-Clause */
#include "tool.h"
int tool_info(int argc, char **argv)
{
	return TOOL_FAILED;
}
