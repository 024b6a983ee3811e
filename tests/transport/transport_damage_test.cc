// Messages that the wire changes end the run, and are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "fleet.h"
#include "isoloss/transport/message.h"

namespace isoloss::transport::transport_damage_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TransportDamage : public ::testing::TestWithParam<Arrangement> {
 protected:
  using Damage = decltype(TransportOptions::damage);

  /// Three operations of uneven traffic among 8 ranks; the errors of all
  /// processes.
  static std::vector<std::string> RunDamaged(const Damage& damage) {
    Fleet fleet(GetParam(),
                {.ranks = 8, .deadline_seconds = 5, .damage = damage});
    return fleet.Run([&](Transport& transport) {
      transport.BeginStep(4);
      for (int round = 0; round < 3; ++round) {
        UnevenTraffic().Exchange(transport, round, {OpKind::kDispatch, round});
      }
    });
  }
};

std::byte FlipBit(std::byte byte) { return byte ^ std::byte{4}; }

TEST_P(TransportDamage, OfAnyHeaderByteEndsTheRun) {
  for (size_t at = 0; at < kHeaderBytes; ++at) {
    const auto errors =
        RunDamaged([&](int source, int to, std::span<std::byte> message) {
          if (source != 1 || to != 6) return;
          message[at] = FlipBit(message[at]);
        });

    for (const std::string& error : errors) {
      ASSERT_THAT(error,
                  AllOf(HasSubstr("step 4, dispatch, MoE layer"),
                        HasSubstr("from rank 1 to rank 6"),
                        HasSubstr("damaged on the way: header CRC32C is 0x")))
          << at;
    }
  }
}

TEST_P(TransportDamage, OfAnyPayloadEndsTheRun) {
  for (int from = 0; from < 8; ++from) {
    std::atomic<int> damaged{0};
    const auto errors =
        RunDamaged([&](int source, int, std::span<std::byte> message) {
          if (source != from || message.size() == kHeaderBytes) return;
          message.back() = FlipBit(message.back());
          ++damaged;
        });

    EXPECT_GT(damaged, 0);
    for (const std::string& error : errors) {
      EXPECT_THAT(error,
                  AllOf(HasSubstr("step 4, dispatch, MoE layer"),
                        HasSubstr("from rank " + std::to_string(from)),
                        HasSubstr("damaged on the way: payload CRC32C is 0x"),
                        HasSubstr("--resume")));
    }
  }
}

/// Not damage but a wrong message, as a faulty sender would make: its CRCs are
/// right.
TEST_P(TransportDamage, AnIntactStaleMessageEndsTheRun) {
  std::vector<std::byte> old;
  const auto errors =
      RunDamaged([&](int source, int to, std::span<std::byte> message) {
        if (source != 6 || to != 2) return;
        if (old.empty()) {
          old.assign(message.begin(), message.end());
        } else {
          std::memcpy(message.data(), old.data(),
                      std::min(old.size(), message.size()));
        }
      });

  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("from rank 6 to rank 2"),
                             HasSubstr("stale message")));
  }
}

INSTANTIATE_TEST_SUITE_P(Arrangements, TransportDamage,
                         ::testing::ValuesIn(AllArrangements()), NameOf);

}  // namespace
}  // namespace isoloss::transport::transport_damage_test
