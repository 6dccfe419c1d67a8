/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of message/ only. */
#ifndef SLUICE_MESSAGE_PRIVATE_H
#define SLUICE_MESSAGE_PRIVATE_H

#include "message/message.h"

extern _Atomic bool message_is_on;

#endif
