// Phases that throw, disagree, stall or are aborted: everybody hears why, and
// nothing hangs. Times are limits on hanging, not measurements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>

#include "fleet.h"
#include "isoloss/base/error.h"

namespace isoloss::transport::transport_failure_test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kDeadline = 0.5;

double SecondsOf(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

void SendNothing(int, Outbox&) {}
void ExpectNothing(int, std::span<MessageSize>) {}
void Ignore(int, const Inbox&) {}

class TransportFailure : public ::testing::TestWithParam<Arrangement> {
 protected:
  static std::vector<std::string> Errors(const Fleet::Program& program) {
    Fleet fleet(GetParam(), {.ranks = 8, .deadline_seconds = kDeadline});
    std::vector<std::string> errors;
    EXPECT_LT(SecondsOf([&] { errors = fleet.Run(program); }),
              2 * kDeadline + 2);
    return errors;
  }
  static void ThrowAt(int rank, int thrower) {
    if (rank == thrower) throw std::runtime_error("the roof is on fire");
  }
};

TEST_P(TransportFailure, InProduceIsHeardByAll) {
  const auto errors = Errors([](Transport& transport) {
    transport.BeginStep(9);
    transport.AllToAll(
        {OpKind::kCombine, 1}, [](int rank, Outbox&) { ThrowAt(rank, 5); },
        ExpectNothing, Ignore);
    transport.Barrier();
  });

  EXPECT_THAT(errors, Each(AllOf(HasSubstr("step 9, combine, MoE layer 1"),
                                 HasSubstr("rank 5 failed in phase produce"),
                                 HasSubstr("the roof is on fire"))));
}

TEST_P(TransportFailure, InConsumeIsHeardByAll) {
  const auto errors = Errors([](Transport& transport) {
    transport.AllToAll({OpKind::kCombine, 1}, SendNothing, ExpectNothing,
                       [](int rank, const Inbox&) { ThrowAt(rank, 2); });
    transport.Barrier();
  });

  EXPECT_THAT(errors, Each(AllOf(HasSubstr("rank 2 failed in phase consume"),
                                 HasSubstr("the roof is on fire"))));
}

TEST_P(TransportFailure, InFillIsHeardByAll) {
  const auto errors = Errors([](Transport& transport) {
    transport.AllGather({OpKind::kVote}, 8, [](int rank, std::span<std::byte>) {
      ThrowAt(rank, 7);
    });
  });

  EXPECT_THAT(errors, Each(AllOf(HasSubstr("vote"),
                                 HasSubstr("rank 7 failed in phase fill"))));
}

TEST_P(TransportFailure, Stays) {
  const auto errors = Errors([](Transport& transport) {
    std::string first;
    try {
      transport.AllGather(
          {OpKind::kVote}, 8,
          [](int rank, std::span<std::byte>) { ThrowAt(rank, 7); });
    } catch (const Error& error) {
      first = error.what();
    }
    EXPECT_NE(first, "");
    bool filled = false;
    for (int attempt = 0; attempt < 3; ++attempt) {
      try {
        transport.AllGather({OpKind::kCounts}, 8,
                            [&](int, std::span<std::byte>) { filled = true; });
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.what(), first);
      }
    }
    transport.Abort("another reason");
    EXPECT_FALSE(filled);
    transport.Barrier();
  });

  EXPECT_THAT(errors, Each(HasSubstr("rank 7 failed in phase fill")));
}

struct Mismatch {
  MessageSize sent;
  MessageSize expected;
  const char* text;
};

TEST_P(TransportFailure, IsWhatUnexpectedSizesAre) {
  const Mismatch mismatches[] = {
      {{2, 200}, {3, 300}, "but 3 rows in 300 bytes are expected"},
      {{3, 300}, {2, 200}, "but 2 rows in 200 bytes are expected"},
      {{2, 64}, {1, 64}, "2 rows in 64 bytes, but 1 rows in 64 bytes"},
      {{0, 0}, {1, 10}, "but 1 rows in 10 bytes are expected"},
      {{1, 10}, {0, 0}, "expected"},
  };
  for (const Mismatch& mismatch : mismatches) {
    const auto errors = Errors([&](Transport& transport) {
      const Traffic sent([&](int, int source, int to) {
        return source == 6 && to == 1 ? mismatch.sent : MessageSize{1, 8};
      });
      const Traffic expected([&](int, int source, int to) {
        return source == 6 && to == 1 ? mismatch.expected : MessageSize{1, 8};
      });
      transport.AllToAll(
          {OpKind::kDispatch, 0},
          [&](int rank, Outbox& outbox) { sent.Fill(0, rank, 8, outbox); },
          [&](int rank, std::span<MessageSize> sizes) {
            expected.Expect(0, rank, sizes);
          },
          Ignore);
      transport.Barrier();
    });

    EXPECT_THAT(errors, Each(AllOf(HasSubstr("dispatch, MoE layer 0"),
                                   HasSubstr("rank 1"), HasSubstr("rank"),
                                   HasSubstr(mismatch.text))));
  }
}

TEST_P(TransportFailure, IsAnOutboxFilledAgainstItsRules) {
  const std::function<void(Outbox&)> offences[] = {
      [](Outbox& outbox) {
        outbox.Add(3, {1, 8});
        outbox.Add(2, {1, 8});
      },
      [](Outbox& outbox) {
        outbox.Add(3, {1, 8});
        outbox.Add(3, {1, 8});
      },
      [](Outbox& outbox) {
        outbox.Add(3, {0, 0});
      },
      [](Outbox& outbox) {
        outbox.Add(8, {1, 8});
      },
  };
  for (const auto& offend : offences) {
    const auto errors = Errors([&](Transport& transport) {
      transport.AllToAll(
          {OpKind::kDispatch},
          [&](int rank, Outbox& outbox) {
            if (rank == 4) offend(outbox);
          },
          ExpectNothing, Ignore);
      transport.Barrier();
    });

    EXPECT_THAT(errors, Each(HasSubstr("Add messages in the order of ranks")));
  }
}

TEST_P(TransportFailure, IsAnAbortBetweenOperations) {
  const auto errors = Errors([](Transport& transport) {
    transport.Barrier();
    if (transport.process() == 0) transport.Abort("enough is enough");
    transport.Barrier();
    transport.Barrier();
  });

  EXPECT_THAT(errors, Each(HasSubstr("enough is enough")));
}

TEST_P(TransportFailure, IsAnAbortByAnotherThreadInTheMidst) {
  const auto errors = Errors([&](Transport& transport) {
    std::atomic<bool> aborted{false};
    std::thread other;
    if (transport.process() == 0) {
      other = std::thread([&] {
        std::this_thread::sleep_for(milliseconds(50));
        transport.Abort("enough is enough");
        aborted = true;
      });
    }
    // Ranks of process 0 are busy until it has happened, the others wait.
    const auto end = std::chrono::steady_clock::now() + milliseconds(300);
    std::string text;
    try {
      transport.AllToAll(
          {OpKind::kDispatch},
          [&](int rank, Outbox&) {
            if (rank != 0) return;
            while (!aborted && std::chrono::steady_clock::now() < end) {
              std::this_thread::yield();
            }
          },
          ExpectNothing, Ignore);
      transport.Barrier();
    } catch (const Error& error) {
      text = error.what();
    }
    if (other.joinable()) other.join();
    if (!text.empty()) throw Error(ErrorKind::kTransport, text);
  });

  EXPECT_THAT(errors, Each(HasSubstr("enough is enough")));
}

INSTANTIATE_TEST_SUITE_P(Arrangements, TransportFailure,
                         ::testing::ValuesIn(AllArrangements()), NameOf);

/// Transports with a thread per rank notice that one of them is stuck.
class StuckRank : public ::testing::TestWithParam<const char*> {};

TEST_P(StuckRank, IsNamedAtTheDeadline) {
  Executor executor(1);
  // Outlives the transport, as the stuck phase does.
  const auto release = std::make_shared<std::atomic<bool>>(false);
  const auto left = std::make_shared<std::atomic<bool>>(false);
  std::string text;

  EXPECT_LT(SecondsOf([&] {
              const auto transport = MakeTransport(
                  GetParam(), {.ranks = 8, .deadline_seconds = kDeadline},
                  executor);
              transport->BeginStep(2);
              try {
                transport->AllToAll(
                    {OpKind::kDispatch, 1},
                    [release, left](int rank, Outbox& outbox) {
                      if (rank == 3) {
                        while (!*release) {
                          std::this_thread::sleep_for(milliseconds(1));
                        }
                        *left = true;
                      }
                      outbox.Add(0, {1, 8});
                    },
                    [](int rank, std::span<MessageSize> sizes) {
                      if (rank != 0) return;
                      for (MessageSize& size : sizes) size = {1, 8};
                    },
                    Ignore);
              } catch (const Error& error) {
                text = error.what();
              }
            }),
            kDeadline + 1);

  EXPECT_THAT(text, AllOf(HasSubstr("step 2, dispatch, MoE layer 1"),
                          HasSubstr("rank 3 is in phase produce")));
  *release = true;
  while (!*left) std::this_thread::yield();
}

TEST_P(StuckRank, IsNotOneThatWorksLongerThanOthersWait) {
  Executor executor(1);
  const auto transport = MakeTransport(
      GetParam(), {.ranks = 4, .deadline_seconds = 0.4}, executor);

  // Together beyond the deadline, each within it.
  std::atomic<int> turn{0};
  transport->AllGather({OpKind::kCounts}, 1,
                       [&](int rank, std::span<std::byte> mine) {
                         while (turn != rank)
                           std::this_thread::sleep_for(milliseconds(1));
                         std::this_thread::sleep_for(milliseconds(200));
                         mine[0] = std::byte{1};
                         ++turn;
                       });

  EXPECT_EQ(turn, 4);
}

INSTANTIATE_TEST_SUITE_P(Transports, StuckRank,
                         ::testing::Values("threads", "shuffled"),
                         [](const auto& tested) {
                           return std::string(tested.param);
                         });

TEST(ThreadsTransport, AccountsWaitingToTheSlowRank) {
  Executor executor(1);
  const auto transport = MakeTransport("threads", {.ranks = 4}, executor);
  transport->AllToAll(
      {OpKind::kDispatch},
      [](int rank, Outbox& outbox) {
        if (rank == 2) std::this_thread::sleep_for(milliseconds(100));
        for (int to = 0; to < 4; ++to) outbox.Add(to, {1, 8});
      },
      [](int, std::span<MessageSize> sizes) {
        for (MessageSize& size : sizes) size = {1, 8};
      },
      Ignore);

  const Counters counters = transport->TakeCounters();
  for (size_t rank : {0, 1, 3}) {
    EXPECT_GT(counters.wait_seconds[2], counters.wait_seconds[rank]);
  }
}

}  // namespace
}  // namespace isoloss::transport::transport_failure_test
