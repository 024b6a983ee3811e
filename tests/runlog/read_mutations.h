// Run logs with bytes changed behind a digest that fits.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/runlog/writer.h"
#include "runlog/log_file.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog {

/// Mutations of the bytes that HDF5 sees. A crash, a hang or an error that is
/// none of ours ends the test.
inline void ReadMutations(uint64_t seed, uint64_t trials) {
  const test_support::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  const std::string whole(test_support::Unsealed(test_support::Bytes(path)));
  const CounterRng rng(seed, StreamId("sealed mutations"));
  uint64_t refused = 0;
  for (uint64_t trial = 0; trial < trials; ++trial) {
    std::string bytes = whole;
    for (uint64_t edit = 0; edit <= trial % 8; ++edit) {
      const uint64_t draw = 32 * trial + 2 * edit;
      bytes[rng.Below(draw, bytes.size())] =
          static_cast<char>(rng.Bits(draw + 1));
    }
    test_support::WriteBytes(path, test_support::Sealed(bytes));
    const auto start = std::chrono::steady_clock::now();
    try {
      ReadRunLog(path);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
      ++refused;
    }
    ASSERT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(10))
        << "trial " << trial;
  }
  rusage usage = {};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  EXPECT_LT(usage.ru_maxrss, 1 << 20) << "KiB";  // of the largest child
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 1 << 20) << "KiB";
  // Most of the file is values, in which a change is found by its checksum.
  EXPECT_GT(refused, trials / 2);
}

}  // namespace isoloss::runlog
