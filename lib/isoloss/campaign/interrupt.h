// SIGINT, SIGTERM and SIGHUP as a flag that long work looks at.
#pragma once

#include <atomic>

namespace isoloss::campaign {

/// From now on SIGINT, SIGTERM and SIGHUP set the returned flag: runs end after
/// their current step and keep what they have. A second SIGINT or SIGTERM kills
/// the program; SIGHUP comes twice when a terminal closes, from the kernel and
/// from the shell, so it never does. One that is ignored (nohup) stays ignored.
const std::atomic<bool>& InterruptFlag();

/// Where a command begins whose work looks at the flag later.
inline void ListenToSignals() { InterruptFlag(); }

/// From now on SIGPIPE sets the flag, too, in place of killing the program:
/// whoever read its messages is gone. For work that leaves something to tidy
/// up.
void ListenToClosedPipes();

}  // namespace isoloss::campaign
