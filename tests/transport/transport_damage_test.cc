// Messages that the wire changes: repaired once, or the end of the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "fleet.h"
#include "isoloss/transport/message.h"

namespace isoloss::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TransportDamage : public ::testing::TestWithParam<Arrangement> {
 protected:
  struct Outcome {
    std::vector<std::string> errors;
    int64_t crc_failures = 0;
    int64_t resends = 0;
  };
  using Damage = decltype(TransportOptions::damage);

  /// Three operations of uneven traffic among 8 ranks.
  static Outcome RunDamaged(const Damage& damage) {
    Fleet fleet(GetParam(),
                {.ranks = 8, .deadline_seconds = 5, .damage = damage});
    Outcome outcome;
    std::mutex mutex;
    outcome.errors = fleet.Run([&](Transport& transport) {
      transport.BeginStep(4);
      for (int round = 0; round < 3; ++round) {
        UnevenTraffic().Exchange(transport, round, {OpKind::kDispatch, round});
      }
      const Counters counters = transport.TakeCounters();
      const std::lock_guard lock(mutex);
      outcome.crc_failures += counters.crc_failures;
      outcome.resends += counters.resends;
    });
    return outcome;
  }
};

std::byte FlipBit(std::byte byte) { return byte ^ std::byte{4}; }

TEST_P(TransportDamage, OfAnyHeaderByteIsRepaired) {
  for (size_t at = 0; at < kHeaderBytes; ++at) {
    std::atomic<int> damaged{0};
    const Outcome outcome = RunDamaged(
        [&](int source, int to, int attempt, std::span<std::byte> message) {
          if (source != 1 || to != 6 || attempt != 0) return;
          message[at] = FlipBit(message[at]);
          ++damaged;
        });

    ASSERT_GT(damaged, 0);
    for (const std::string& error : outcome.errors) ASSERT_EQ(error, "");
    ASSERT_EQ(outcome.crc_failures, damaged);
    ASSERT_EQ(outcome.resends, damaged);
  }
}

TEST_P(TransportDamage, OfEveryPayloadIsRepaired) {
  std::atomic<int> damaged{0};
  const Outcome outcome =
      RunDamaged([&](int, int, int attempt, std::span<std::byte> message) {
        if (attempt != 0 || message.size() == kHeaderBytes) return;
        message.back() = FlipBit(message.back());
        ++damaged;
      });

  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  EXPECT_GT(damaged, 50);
  EXPECT_EQ(outcome.crc_failures, damaged);
  EXPECT_EQ(outcome.resends, damaged);
}

TEST_P(TransportDamage, OfBothCopiesEndsTheRun) {
  const Outcome outcome =
      RunDamaged([&](int source, int to, int, std::span<std::byte> message) {
        if (source != 6 || to != 2) return;
        message[kHeaderBytes] = FlipBit(message[kHeaderBytes]);
      });

  for (const std::string& error : outcome.errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("step 4, dispatch, MoE layer 0"),
                             HasSubstr("from rank 6 to rank 2"),
                             HasSubstr("damaged twice: payload CRC32C is 0x")));
  }
}

/// Not damage but a wrong message, as a faulty sender would make: its CRCs are
/// right.
TEST_P(TransportDamage, AnIntactStaleMessageEndsTheRun) {
  std::vector<std::byte> old;
  const Outcome outcome =
      RunDamaged([&](int source, int to, int, std::span<std::byte> message) {
        if (source != 6 || to != 2) return;
        if (old.empty()) {
          old.assign(message.begin(), message.end());
        } else {
          std::memcpy(message.data(), old.data(),
                      std::min(old.size(), message.size()));
        }
      });

  for (const std::string& error : outcome.errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("from rank 6 to rank 2"),
                             HasSubstr("stale message")));
  }
}

INSTANTIATE_TEST_SUITE_P(Arrangements, TransportDamage,
                         ::testing::ValuesIn(AllArrangements()), NameOf);

}  // namespace
}  // namespace isoloss::transport
