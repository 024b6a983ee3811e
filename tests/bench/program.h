// What the benchmark programs' main functions share.
#pragma once

#include <functional>

namespace isoloss::bench {

/// Reads the command line (Google Benchmark's options, and `--rounds=N`: how
/// many samples a median is taken of), applies ISOLOSS_FORCE_KERNEL, calls
/// `register_all` with the number of rounds and runs what it registered.
/// Returns the exit code; 2 with a message if the command line is wrong.
int RunProgram(int argc, char** argv,
               const std::function<void(int rounds)>& register_all);

}  // namespace isoloss::bench
