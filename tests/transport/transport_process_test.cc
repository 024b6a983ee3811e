// What networks and processes do to each other: parcels lost, doubled, late or
// damaged; processes that die, stop, leave, or do something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>

#include "fleet.h"
#include "isoloss/base/error.h"
#include "isoloss/transport/message.h"

namespace isoloss::transport::transport_process_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Fate = MemoryNetwork::Fate;

constexpr double kDeadline = 0.5;
constexpr Arrangement kFour{"four_processes", "memory", 4};
constexpr Arrangement kTwo{"two_processes", "memory", 2};

struct Outcome {
  std::vector<std::string> errors;
  double seconds = 0;
};

Outcome RunFleet(Fleet& fleet, const Fleet::Program& program) {
  Outcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  outcome.errors = fleet.Run(program);
  outcome.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  return outcome;
}

/// Six operations.
void Steps(Transport& transport) {
  for (int round = 0; round < 3; ++round) {
    transport.BeginStep(round);
    UnevenTraffic().Exchange(transport, round, {OpKind::kDispatch, 1});
    UnevenTraffic().Exchange(transport, round, {OpKind::kCombine, 1});
  }
}

Outcome RunSteps(const Arrangement& arrangement,
                 const MemoryNetwork::Hook& hook) {
  Fleet fleet(arrangement, {.ranks = 8, .deadline_seconds = kDeadline}, hook);
  return RunFleet(fleet, Steps);
}

TEST(Processes, MissAFrameThatIsLost) {
  const Outcome outcome =
      RunSteps(kFour, [](int source, int to, int number, std::span<std::byte>) {
        return source == 1 && to == 2 && number == 3 ? Fate::kDrop
                                                     : Fate::kDeliver;
      });

  EXPECT_LT(outcome.seconds, kDeadline + 1);
  // All deadlines end at about the same time. Whoever is first, its reason says
  // where the chain of waiting ends: process 2 has no frame of process 1.
  EXPECT_THAT(
      outcome.errors,
      Each(AnyOf(HasSubstr("step 1, combine, MoE layer 1: process 2 waited"),
                 HasSubstr("process 2 (which waits in step 1, combine, MoE "
                           "layer 1, for process 1"))));
}

TEST(Processes, MissOneThatDied) {
  Fleet fleet(kFour, {.ranks = 8, .deadline_seconds = kDeadline});
  const Outcome outcome = RunFleet(fleet, [&](Transport& transport) {
    Steps(transport);
    if (transport.process() == 3) fleet.network().Silence(3);
    transport.BeginStep(7);
    Steps(transport);
  });

  EXPECT_LT(outcome.seconds, 2 * kDeadline + 1);
  for (int process = 0; process < 3; ++process) {
    EXPECT_THAT(outcome.errors[static_cast<size_t>(process)],
                AllOf(HasSubstr("step 0, dispatch, MoE layer 1"),
                      HasSubstr("for process 3"), HasSubstr("deadline")));
  }
}

TEST(Processes, SayThatAnotherLeft) {
  Fleet fleet(kTwo, {.ranks = 8, .deadline_seconds = kDeadline});
  const Outcome outcome = RunFleet(fleet, [&](Transport& transport) {
    if (transport.process() == 0) Steps(transport);
  });

  EXPECT_THAT(outcome.errors[0], HasSubstr("process 1 has ended its run"));
  EXPECT_LT(outcome.seconds, kDeadline + 1);
}

TEST(Processes, NameBothOperationsIfOneSkipsOne) {
  for (const int skipper : {0, 1}) {
    Fleet fleet(kTwo, {.ranks = 8, .deadline_seconds = kDeadline});
    const Outcome outcome = RunFleet(fleet, [&](Transport& transport) {
      transport.BeginStep(5);
      const Traffic traffic = UnevenTraffic();
      traffic.Exchange(transport, 0, {OpKind::kDispatch, 2});
      if (transport.process() != skipper) {
        traffic.Exchange(transport, 1, {OpKind::kCombine, 2});
      }
      traffic.Exchange(transport, 2, {OpKind::kDispatch, 3});
    });

    EXPECT_LT(outcome.seconds, kDeadline + 1);
    EXPECT_THAT(outcome.errors,
                Each(AllOf(HasSubstr("in step 5, combine, MoE layer 2"),
                           HasSubstr("in step 5, dispatch, MoE layer 3"),
                           HasSubstr("you, process"))));
  }
}

TEST(Processes, NameBothStepsIfTheyPartCompany) {
  Fleet fleet(kTwo, {.ranks = 8, .deadline_seconds = kDeadline});
  const Outcome outcome = RunFleet(fleet, [&](Transport& transport) {
    transport.BeginStep(transport.process());
    transport.Barrier();
  });

  EXPECT_THAT(outcome.errors, Each(AllOf(HasSubstr("step 0, barrier"),
                                         HasSubstr("step 1, barrier"))));
}

TEST(Processes, RefuseContributionsOfDifferentSizes) {
  Fleet fleet(kTwo, {.ranks = 8, .deadline_seconds = kDeadline});
  const Outcome outcome = RunFleet(fleet, [&](Transport& transport) {
    const size_t bytes = transport.process() == 0 ? 8 : 16;
    transport.AllGather({OpKind::kCounts}, bytes,
                        [](int, std::span<std::byte>) {});
    transport.Barrier();
  });

  EXPECT_THAT(outcome.errors, Each(HasSubstr("are expected")));
}

TEST(Processes, NoticeAFrameThatComesTwice) {
  const Outcome outcome =
      RunSteps(kTwo, [](int source, int, int number, std::span<std::byte>) {
        return source == 1 && number == 2 ? Fate::kDuplicate : Fate::kDeliver;
      });

  EXPECT_LT(outcome.seconds, kDeadline + 1);
  EXPECT_THAT(outcome.errors,
              Each(AllOf(HasSubstr("from process 1"),
                         AnyOf(HasSubstr("twice"), HasSubstr("stale")))));
}

TEST(Processes, NoticeAStaleFrame) {
  // Instead of the frame of operation 4, that of operation 2, of equal size.
  std::vector<std::byte> old;
  Fleet fleet(kTwo, {.ranks = 8, .deadline_seconds = kDeadline},
              [&](int source, int, int number, std::span<std::byte> bytes) {
                if (source == 1 && number == 1) {
                  old.assign(bytes.begin(), bytes.end());
                }
                if (source == 1 && number == 3) {
                  std::memcpy(bytes.data(), old.data(), old.size());
                }
                return Fate::kDeliver;
              });
  const Outcome outcome = RunFleet(fleet, [](Transport& transport) {
    for (int round = 0; round < 6; ++round) transport.Barrier();
  });

  EXPECT_THAT(outcome.errors, Each(AllOf(HasSubstr("(operation 2), a stale"),
                                         HasSubstr("you are in operation"))));
}

/// Damage to a frame's own header or directory, as the network does it.
class FrameDamage : public ::testing::TestWithParam<size_t> {};

TEST_P(FrameDamage, EndsTheRun) {
  Fleet fleet(kFour, {.ranks = 8, .deadline_seconds = 30},
              [](int source, int to, int number, std::span<std::byte> bytes) {
                if (source == 2 && to == 0 && number == 1) {
                  bytes[GetParam()] ^= std::byte{1};
                }
                return Fate::kDeliver;
              });
  const Outcome outcome = RunFleet(fleet, Steps);

  // Process 0 may already have it while it still waits for another's frame of
  // the dispatch before.
  EXPECT_THAT(outcome.errors,
              Each(AllOf(HasSubstr("step 0, "), HasSubstr(", MoE layer 1"),
                         HasSubstr("process 0, frame from process 2"),
                         HasSubstr("damaged on the way"))));
  EXPECT_LT(outcome.seconds, 10) << "long before the deadline";
}

/// Of the first frame of step 2, after all has gone well for long. It may
/// arrive while process 0 still waits for others in the operation before.
TEST_P(FrameDamage, OfALaterFrameEndsTheRun) {
  std::atomic<int> frames{0};
  Fleet fleet(kFour, {.ranks = 8, .deadline_seconds = 30},
              [&](int source, int to, int, std::span<std::byte> bytes) {
                const bool is_frame = HeaderOf(bytes).magic == Magic::kFrame;
                if (source == 2 && to == 0 && is_frame && ++frames == 5) {
                  bytes[GetParam()] ^= std::byte{1};
                }
                return Fate::kDeliver;
              });
  const Outcome outcome = RunFleet(fleet, Steps);

  EXPECT_THAT(outcome.errors,
              Each(AllOf(AnyOf(HasSubstr("step 2, dispatch, MoE layer 1"),
                               HasSubstr("step 1, combine, MoE layer 1")),
                         HasSubstr("process 0, frame from process 2"),
                         HasSubstr("damaged on the way"))));
}

INSTANTIATE_TEST_SUITE_P(Bytes, FrameDamage,
                         ::testing::Values(0, 4, 6, 8, 16, 24, 32, 36, 40, 48,
                                           56, 60, kHeaderBytes));

TEST(Processes, NoticeDamageOfAFrameInManyParcels) {
  std::atomic<int> damaged{0};
  const Arrangement small{"small", "memory", 2, 1, 128};
  const Outcome outcome =
      RunSteps(small, [&](int source, int, int, std::span<std::byte> bytes) {
        // Of the second frame's first parcel, the frame's header.
        if (source == 1 && bytes.size() >= kHeaderBytes &&
            HeaderOf(bytes).magic == Magic::kFrame &&
            HeaderOf(bytes).sequence == 2) {
          bytes[10] ^= std::byte{1};
          ++damaged;
        }
        return Fate::kDeliver;
      });

  EXPECT_EQ(damaged, 1);
  EXPECT_THAT(outcome.errors,
              Each(AllOf(HasSubstr("process 0, frame from process 1"),
                         HasSubstr("damaged on the way: header CRC32C"))));
}

/// A frame whose header the network changes in one bit.
void Damage(std::span<std::byte> bytes) { bytes[20] ^= std::byte{2}; }

TEST(Processes, NoticeDamageOfAWaitingFrame) {
  Fleet fleet(kFour, {.ranks = 8, .deadline_seconds = kDeadline},
              [](int, int to, int, std::span<std::byte> bytes) {
                const bool waiting = HeaderOf(bytes).magic == Magic::kWaiting;
                if (waiting && to == 1) Damage(bytes);
                return Fate::kDeliver;
              });
  const Outcome outcome = RunFleet(fleet, [&](Transport& transport) {
    if (transport.process() == 3) fleet.network().Silence(3);
    transport.BeginStep(7);
    Steps(transport);
  });

  EXPECT_LT(outcome.seconds, kDeadline + 1);
  EXPECT_THAT(outcome.errors[1],
              AllOf(HasSubstr("step 0, dispatch, MoE layer 1"),
                    HasSubstr("process 1, frame from process "),
                    HasSubstr("damaged on the way: header CRC32C")));
}

/// Each frame from the third on, which is that of step 1, so also what it says
/// of the damage that it finds itself.
TEST(Processes, NoticeDamageThatDoesNotEnd) {
  const Outcome outcome =
      RunSteps(kTwo, [](int, int, int number, std::span<std::byte> bytes) {
        if (number >= 2) Damage(bytes);
        return Fate::kDeliver;
      });

  EXPECT_LT(outcome.seconds, kDeadline + 1);
  for (int process = 0; process < 2; ++process) {
    EXPECT_THAT(
        outcome.errors[static_cast<size_t>(process)],
        AllOf(AnyOf(HasSubstr("step 0, combine, MoE layer 1"),
                    HasSubstr("step 1, dispatch, MoE layer 1")),
              HasSubstr("process " + std::to_string(process) +
                        ", frame from process " + std::to_string(1 - process)),
              HasSubstr("damaged on the way")));
  }
}

/// The end of a run has no operation that could fail; the next run has. Process
/// 1 says goodbye after both have finished, or process 0 would already see the
/// damage in its last operation.
TEST(Processes, NoticeDamageOfAGoodbyeInTheNextRun) {
  std::atomic<int> damaged{0};
  std::barrier finished(2);
  Fleet fleet(kTwo, {.ranks = 8, .deadline_seconds = kDeadline},
              [&](int source, int, int, std::span<std::byte> bytes) {
                const bool goodbye = HeaderOf(bytes).magic == Magic::kGoodbye;
                if (goodbye && source == 1) {
                  Damage(bytes);
                  ++damaged;
                }
                return Fate::kDeliver;
              });
  const Outcome first = RunFleet(fleet, [&](Transport& transport) {
    Steps(transport);
    finished.arrive_and_wait();
  });
  EXPECT_EQ(damaged, 1);
  EXPECT_THAT(first.errors, Each(""));

  const Outcome second = RunFleet(fleet, Steps);

  EXPECT_LT(second.seconds, kDeadline + 1);
  EXPECT_THAT(second.errors,
              Each(AllOf(HasSubstr("step 2, combine, MoE layer 1: process 0, "
                                   "frame from process 1"),
                         HasSubstr("damaged on the way: header CRC32C"))));
}

TEST(Processes, AreNamedBesideTheRanksOfADamagedMessage) {
  Fleet fleet(kTwo,
              {.ranks = 8,
               .deadline_seconds = kDeadline,
               .damage = [](int source, int to, std::span<std::byte> message) {
                 if (source == 1 && to == 6) message[20] ^= std::byte{1};
               }});
  const Outcome outcome = RunFleet(fleet, Steps);

  EXPECT_THAT(outcome.errors,
              Each(AllOf(HasSubstr("from rank 1 to rank 6"),
                         HasSubstr("Process 0 sent it to process 1."))));
}

/// What a process sent outlasts it.
TEST(Processes, ReadWhatCameFromOneThatLeft) {
  Fleet fleet(kTwo, {.ranks = 8, .deadline_seconds = 5});
  const Outcome outcome = RunFleet(fleet, [](Transport& transport) {
    const Traffic traffic([](int, int, int) { return MessageSize{1, 8}; });
    transport.AllToAll(
        {OpKind::kDispatch},
        [&](int rank, Outbox& outbox) { traffic.Fill(0, rank, 8, outbox); },
        [&](int rank, std::span<MessageSize> sizes) {
          traffic.Expect(0, rank, sizes);
          // Meanwhile the other process says goodbye.
          if (rank == 4) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
          }
        },
        [&](int rank, const Inbox& inbox) {
          traffic.Verify(0, rank, 8, inbox);
        });
  });

  EXPECT_THAT(outcome.errors, Each(""));
}

TEST(Processes, RefuseToMixKindsOfCalls) {
  Fleet fleet(kTwo, {.ranks = 8, .deadline_seconds = kDeadline});
  for (const size_t bytes : {0, 8, 1000}) {
    const Outcome outcome = RunFleet(fleet, [&](Transport& transport) {
      if (transport.process() == 0) {
        UnevenTraffic().Exchange(transport, 0, {OpKind::kCounts});
      } else {
        transport.AllGather({OpKind::kCounts}, bytes,
                            [](int, std::span<std::byte>) {});
      }
      transport.Barrier();
    });

    EXPECT_LT(outcome.seconds, kDeadline + 1);
    for (const std::string& error : outcome.errors) EXPECT_NE(error, "");
  }
}

TEST(Processes, HearAnAbortLongBeforeTheDeadline) {
  Fleet fleet(kFour, {.ranks = 8, .deadline_seconds = 30});
  const Outcome outcome = RunFleet(fleet, [&](Transport& transport) {
    Steps(transport);
    if (transport.process() == 2) transport.Abort("no more");
    Steps(transport);
  });

  EXPECT_LT(outcome.seconds, 10);
  for (const size_t process : {0, 1, 3}) {
    EXPECT_EQ(outcome.errors[process], "process 2: no more");
  }
  EXPECT_EQ(outcome.errors[2], "no more");
}

}  // namespace
}  // namespace isoloss::transport::transport_process_test
