// SIGINT and SIGTERM as a flag that long work looks at.
#pragma once

#include <atomic>

namespace isoloss::cli {

/// From now on SIGINT and SIGTERM set the returned flag: runs end after their
/// current step and keep what they have. A second signal kills the program.
const std::atomic<bool>& InterruptFlag();

}  // namespace isoloss::cli
