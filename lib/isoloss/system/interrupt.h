// Turns SIGINT, SIGTERM and SIGHUP into a flag that long work looks at.
#pragma once

#include <atomic>

namespace isoloss::system {

/// From now on SIGINT, SIGTERM and SIGHUP set the returned flag: runs end after
/// their current step and keep what they have. A second SIGINT or SIGTERM kills
/// the program. SIGHUP never does, since it comes twice when a terminal closes,
/// from the kernel and from the shell. A signal that is ignored (nohup) stays
/// ignored.
const std::atomic<bool>& InterruptFlag();

/// A command calls it at its beginning if its work looks at the flag later.
inline void ListenToSignals() { InterruptFlag(); }

}  // namespace isoloss::system
