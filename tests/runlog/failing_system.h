// A system whose calls that change files fail, or kill the process: the program
// that links failing_system.cc has its calls in place of the C library's.
#pragma once

#include <atomic>

namespace isoloss::test_support {

/// Calls that change files until the process dies; negative: it lives.
extern std::atomic<int> calls_to_live;
/// Whether ftruncate fails.
extern std::atomic<bool> truncation_fails;
/// Whether the bytes of HDF5 files are damaged on their way to the disk.
extern std::atomic<bool> hdf5_is_damaged;
/// How long fsync takes besides.
extern std::atomic<int> sync_microseconds;

}  // namespace isoloss::test_support
