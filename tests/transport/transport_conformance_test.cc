// What every transport promises of operations that go well.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "fleet.h"

namespace isoloss::transport::transport_conformance_test {
namespace {

constexpr OpKind kKinds[] = {OpKind::kDispatch, OpKind::kCombine,
                             OpKind::kDispatchGradient};

class TransportConformance : public ::testing::TestWithParam<Arrangement> {
 protected:
  /// Runs `program` and expects that no process fails.
  void Run(int ranks, const Fleet::Program& program) const {
    Fleet fleet(GetParam(), {.ranks = ranks, .deadline_seconds = 20});
    for (const std::string& error : fleet.Run(program)) EXPECT_EQ(error, "");
  }
  std::vector<int> RankCounts(std::vector<int> counts) const {
    std::erase_if(counts,
                  [&](int ranks) { return ranks % GetParam().processes != 0; });
    return counts;
  }
};

TEST_P(TransportConformance, DividesRanksAmongProcesses) {
  std::atomic<int> covered{0};
  Run(8, [&](Transport& transport) {
    EXPECT_EQ(transport.ranks(), 8);
    EXPECT_EQ(transport.processes(), GetParam().processes);
    const RankRange mine = transport.RanksOf(transport.process());
    EXPECT_EQ(mine.first, transport.local_ranks().first);
    EXPECT_EQ(mine.end, transport.local_ranks().end);
    covered += mine.size();
  });
  EXPECT_EQ(covered, 8);
}

TEST_P(TransportConformance, DeliversUnevenMessages) {
  const Traffic traffic = UnevenTraffic();
  for (const int ranks : RankCounts({1, 2, 3, 4, 5, 8, 16, 64})) {
    Run(ranks, [&](Transport& transport) {
      for (int round = 0; round < 12; ++round) {
        transport.BeginStep(round / 3);
        traffic.Exchange(transport, round, {kKinds[round % 3], round % 2});
      }
    });
  }
}

TEST_P(TransportConformance, DeliversBetween256Ranks) {
  const Traffic traffic = UnevenTraffic();
  Run(256, [&](Transport& transport) {
    for (int round = 0; round < 2; ++round) {
      traffic.Exchange(transport, round, {OpKind::kDispatch, round});
    }
  });
}

TEST_P(TransportConformance, DeliversNothingAtAll) {
  const Traffic traffic([](int, int, int) { return MessageSize{}; });
  Run(8, [&](Transport& transport) {
    for (int round = 0; round < 3; ++round) {
      traffic.Exchange(transport, round, {OpKind::kDispatch});
    }
    EXPECT_EQ(transport.TakeCounters().messages, 0);
  });
}

TEST_P(TransportConformance, DeliversRowsWithoutBytesAndSingleBytes) {
  const Traffic traffic([](int round, int source, int) {
    return MessageSize{3, static_cast<size_t>(round + source) % 2};
  });
  Run(4, [&](Transport& transport) {
    for (int round = 0; round < 4; ++round) {
      traffic.Exchange(transport, round, {OpKind::kDispatch});
    }
  });
}

TEST_P(TransportConformance, DeliversLargeMessagesAmongSmall) {
  const Traffic traffic([](int round, int source, int destination) {
    const bool large = source == 1 && destination != round % 4;
    return MessageSize{1, large ? size_t{3'000'001} : size_t{5}};
  });
  Run(4, [&](Transport& transport) {
    for (int round = 0; round < 3; ++round) {
      traffic.Exchange(transport, round, {OpKind::kDispatch});
    }
  });
}

TEST_P(TransportConformance, CountsWhatLocalRanksReceive) {
  const Traffic traffic = UnevenTraffic();
  Run(8, [&](Transport& transport) {
    traffic.Exchange(transport, 0, {OpKind::kDispatch});
    traffic.Exchange(transport, 1, {OpKind::kCombine});
    const Counters counters = transport.TakeCounters();
    int64_t messages = 0;
    for (int source = 0; source < 8; ++source) {
      for (int to = 0; to < 8; ++to) {
        int64_t bytes = 0;
        for (int round = 0; round < 2; ++round) {
          const MessageSize size = traffic.size(round, source, to);
          if (!transport.local_ranks().Has(to)) continue;
          bytes += static_cast<int64_t>(size.bytes);
          messages += size.rows > 0 ? 1 : 0;
        }
        EXPECT_EQ(counters.bytes(static_cast<size_t>(source),
                                 static_cast<size_t>(to)),
                  bytes);
      }
    }
    EXPECT_EQ(counters.messages, messages);
    EXPECT_EQ(counters.wait_seconds.size(), 8);
    EXPECT_EQ(transport.TakeCounters().messages, 0) << "not reset";
  });
}

TEST_P(TransportConformance, GathersInTheOrderOfRanks) {
  Run(8, [&](Transport& transport) {
    for (const size_t bytes :
         {size_t{0}, size_t{1}, size_t{8}, size_t{100'000}}) {
      const auto all = transport.AllGather(
          {OpKind::kCounts, 1}, bytes, [](int rank, std::span<std::byte> mine) {
            std::fill(mine.begin(), mine.end(), static_cast<std::byte>(rank));
          });
      ASSERT_EQ(all.size(), 8 * bytes);
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i], static_cast<std::byte>(i / bytes));
      }
    }
  });
}

TEST_P(TransportConformance, ReducesExactly) {
  Run(8, [&](Transport& transport) {
    const auto fill = [](int rank, std::span<uint64_t> mine) {
      mine[0] = uint64_t{1} << (8 * rank);
      mine[1] = rank == 5 ? 3 : ~uint64_t{0} - static_cast<uint64_t>(rank);
    };
    const auto reduce = [&](Reduction reduction) {
      std::vector<uint64_t> values(2, 99);
      transport.AllReduce({OpKind::kScalars}, reduction, fill, values);
      return values;
    };
    // 7 values of 2^64 - 1 - rank and one 3, mod 2^64: -(7 + 28 - 5) + 3.
    const std::vector<uint64_t> sum = {0x0101010101010101,
                                       ~uint64_t{0} - 30 + 4};
    EXPECT_EQ(reduce(Reduction::kSum), sum);
    uint64_t bits = 3;
    for (const uint64_t rank : {0, 1, 2, 3, 4, 6, 7}) bits ^= ~rank;
    EXPECT_EQ(reduce(Reduction::kXor),
              (std::vector<uint64_t>{0x0101010101010101, bits}));
    EXPECT_EQ(reduce(Reduction::kMin), (std::vector<uint64_t>{1, 3}));
    EXPECT_EQ(reduce(Reduction::kMax),
              (std::vector<uint64_t>{uint64_t{1} << 56, ~uint64_t{0}}));
  });
}

TEST_P(TransportConformance, ABarrierIsPassedByAllOrNone) {
  std::atomic<int> arrived{0};
  Run(8, [&](Transport& transport) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      transport.Barrier();
      EXPECT_GE(arrived, round * GetParam().processes);
      transport.Barrier();
    }
  });
}

TEST_P(TransportConformance, ManyTransportsFollowEachOther) {
  const Traffic traffic = UnevenTraffic();
  Fleet fleet(GetParam(), {.ranks = 8, .deadline_seconds = 20});
  for (int run = 0; run < 10; ++run) {
    const auto errors = fleet.Run([&](Transport& transport) {
      traffic.Exchange(transport, run, {OpKind::kDispatch});
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Arrangements, TransportConformance,
                         ::testing::ValuesIn(AllArrangements()), NameOf);

/// The shuffled transport is only worth its name if orders differ.
TEST(ShuffledTransport, BeginsToConsumeInTheOrderOfItsSeed) {
  constexpr int kRanks = 32;
  for (const uint64_t seed : {1, 2, 3}) {
    Executor executor(1);
    const auto transport = MakeTransport(
        "shuffled", {.ranks = kRanks, .shuffle_seed = seed}, executor);
    std::vector<int> order(kRanks);
    std::atomic<size_t> next{0};
    transport->AllToAll(
        {OpKind::kDispatch}, [](int, Outbox&) {},
        [](int, std::span<MessageSize>) {},
        [&](int rank, const Inbox&) { order[next++] = rank; });

    // Ranks are on average kRanks / 3 = 10.7 from their place in a random
    // order, with a deviation of about 1; in or near their own order, not.
    double distance = 0;
    for (int place = 0; place < kRanks; ++place) {
      distance += std::abs(order[static_cast<size_t>(place)] - place);
    }
    EXPECT_GT(distance / kRanks, 5) << "seed " << seed;
  }
}

}  // namespace
}  // namespace isoloss::transport::transport_conformance_test
