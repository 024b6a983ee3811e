// Compares two results of the oracle to the bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "isoloss/runlog/probe_log.h"

namespace isoloss::oracle {

inline void ExpectSameBits(double a, double b, const std::string& what) {
  if (std::isnan(a) && std::isnan(b)) return;
  EXPECT_EQ(std::bit_cast<uint64_t>(a), std::bit_cast<uint64_t>(b))
      << what << ": " << a << " and " << b;
}

/// Compares all figures of a tensor.
inline void ExpectSameRow(const runlog::OracleRow& a,
                          const runlog::OracleRow& b, const std::string& what) {
#define ISOLOSS_ORACLE(type, name, ...)                                    \
  ExpectSameBits(static_cast<double>(a.name), static_cast<double>(b.name), \
                 what + ", " #name);
#include "isoloss/runlog/probe_log.def"
}

}  // namespace isoloss::oracle
