/* SPDX-License-Identifier: BSD-3-Clause */
/* A library with large static memory, opened and closed by memory.c. */
char library_area[2 << 20];
