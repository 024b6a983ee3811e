// Rows, counts and messages that are not what was sent: the invariants and the
// transport's checks (docs/distributed.md, "Faults").
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "isoloss/expert_parallel/assignment.h"
#include "isoloss/transport/message.h"
#include "stage.h"

namespace isoloss::faults::conservation_faults_test {
namespace {

using expert_parallel::Assignment;
using testing::AllOf;
using testing::HasSubstr;
using testing::Matcher;
using transport::MessageSize;
using transport::OpKind;

/// The assignments at the head of a message of a flat dispatch.
std::span<Assignment> TagsOf(std::span<std::byte> dispatch) {
  const size_t rows = dispatch.size() / (sizeof(Assignment) + kRowBytes);
  return {reinterpret_cast<Assignment*>(dispatch.data()), rows};
}

/// What conservation says.
Matcher<std::string> NotConserved(const char* where) {
  return AllOf(HasSubstr(where), HasSubstr("sent for the tokens of rank "),
               HasSubstr("are not those that arrived"));
}

/// In one process and over two.
class ConservationFaults : public testing::TestWithParam<int> {
 protected:
  Scene With(const Faults& faults) const {
    Scene scene;
    scene.processes = GetParam();
    for (int p = 0; p < GetParam(); ++p) scene.faults[p] = faults;
    return scene;
  }
  Injection injection;
};

// Case 8: the routing that combine uses is another's.
TEST_P(ConservationFaults, SwappedRowsOfACombineAreNoticed) {
  const auto swap_rows = [&](const Message& message) {
    if (!message.place.Is(1, OpKind::kCombine, 1)) return;
    const auto rows = message.payload;
    if (rows.size() < 2 * kRowBytes || !injection.Once()) return;
    std::swap_ranges(rows.begin(), rows.begin() + kRowBytes,
                     rows.begin() + kRowBytes);
  };

  ExpectDetected(With({.on_send = swap_rows}), injection,
                 NotConserved("step 1, combine, MoE layer 1:"));
}

// Case 9: rows are read before the sender has written them.
TEST_P(ConservationFaults, RowsOfTheStepBeforeAreNoticed) {
  std::vector<std::byte> stale;
  const auto read_early = [&](const Message& message) {
    if (message.from != 1 || message.to != 3) return;
    const auto rows =
        message.payload.subspan(TagsOf(message.payload).size_bytes());
    if (message.place.Is(1, OpKind::kDispatch, 0)) {
      stale.assign(rows.begin(), rows.end());
    } else if (message.place.Is(2, OpKind::kDispatch, 0)) {
      ASSERT_FALSE(stale.empty());
      std::memcpy(rows.data(), stale.data(),
                  std::min(rows.size(), stale.size()));
      injection.Strike();
    }
  };

  ExpectDetected(With({.on_receive = read_early}), injection,
                 NotConserved("step 2, dispatch, MoE layer 0:"));
}

// Case 10: a buffer is used again one operation early.
TEST_P(ConservationFaults, AMessageOfAnEarlierOperationIsRefused) {
  std::vector<std::byte> old;
  Scene scene = With({});
  scene.damage = [&](int from, int to, std::span<std::byte> message) {
    if (from != 0 || to != 3) return;
    if (old.empty()) {
      old.assign(message.begin(), message.end());
    } else {
      std::memcpy(message.data(), old.data(),
                  std::min(old.size(), message.size()));
      injection.Strike();
    }
  };

  ExpectDetected(
      scene, injection,
      AllOf(HasSubstr("step 0, combine, MoE layer 0"),
            HasSubstr("from rank 0 to rank 3"), HasSubstr("stale message")));
}

// Case 15: a group's rows are cut.
TEST_P(ConservationFaults, AMessageThatIsOneRowShortIsRefused) {
  const auto cut = [&](const Message& message, MessageSize size) {
    if (!message.place.Is(1, OpKind::kDispatchGradient, 1) ||
        message.from != 2 || message.to != 1) {
      return size;
    }
    injection.Strike();
    return MessageSize{size.rows - 1, size.bytes - kRowBytes};
  };

  ExpectDetected(With({.resize = cut}), injection,
                 AllOf(HasSubstr("step 1, dispatch gradient, MoE layer 1"),
                       HasSubstr("from rank 2 to rank 1")));
}

TEST_P(ConservationFaults, AMessageThatIsNotSentIsMissed) {
  const auto leave_out = [&](const Message& message, MessageSize size) {
    if (!message.place.Is(2, OpKind::kCombineGradient, 0) ||
        message.from != 3 || message.to != 0) {
      return size;
    }
    injection.Strike();
    return MessageSize{};
  };

  ExpectDetected(
      With({.resize = leave_out}), injection,
      AllOf(HasSubstr("step 2, combine gradient, MoE layer 0"),
            HasSubstr("from rank 3 to rank 0"), HasSubstr("nothing was sent")));
}

// Case 17: tokens are numbered from a wrong offset.
TEST_P(ConservationFaults, AnothersTokenIdIsNoticedByTheReceiver) {
  const auto renumber = [&](const Message& message) {
    if (!message.place.Is(1, OpKind::kDispatch, 1) || message.from != 2 ||
        message.to != 0) {
      return;
    }
    for (Assignment& tag : TagsOf(message.payload)) tag.token -= 32;
    injection.Strike();
  };

  ExpectDetected(With({.on_send = renumber}), injection,
                 AllOf(HasSubstr("step 1, dispatch, MoE layer 1"),
                       HasSubstr("rank 0 received from rank 2 token ")));
}

TEST_P(ConservationFaults, AWrongTokenIdOfTheSameRankIsNoticed) {
  const auto renumber = [&](const Message& message) {
    if (!message.place.Is(1, OpKind::kDispatch, 1) || message.from != 2 ||
        message.to != 0) {
      return;
    }
    Assignment& last = TagsOf(message.payload).back();
    last.token = last.token == 64 ? 65 : last.token - 1;
    injection.Strike();
  };

  ExpectDetected(With({.on_send = renumber}), injection,
                 NotConserved("step 1, dispatch, MoE layer 1:"));
}

TEST_P(ConservationFaults, ATokenThatComesTwiceIsNoticed) {
  const auto repeat = [&](const Message& message) {
    if (!message.place.Is(1, OpKind::kDispatch, 0) ||
        TagsOf(message.payload).size() < 2 || !injection.Once()) {
      return;
    }
    const auto tags = TagsOf(message.payload);
    const uint32_t row = tags[1].row;
    tags[1] = tags[0];
    tags[1].row = row;
  };

  ExpectDetected(With({.on_send = repeat}), injection,
                 HasSubstr("step 1, dispatch, MoE layer 0"));
}

// Section 3.6: weights come back bit-equal.
TEST_P(ConservationFaults, AnotherCombineWeightIsNoticed) {
  const auto reweigh = [&](const Message& message) {
    if (!message.place.Is(2, OpKind::kDispatch, 0) || message.payload.empty() ||
        !injection.Once()) {
      return;
    }
    TagsOf(message.payload).front().weight *= 2;
  };

  ExpectDetected(With({.on_receive = reweigh}), injection,
                 NotConserved("step 2, dispatch, MoE layer 0:"));
}

// Case 32: the way back forgets the gradients of the combine weights.
TEST_P(ConservationFaults, DroppedWeightGradientsAreNoticed) {
  const auto drop = [&](const Message& message) {
    if (!message.place.Is(1, OpKind::kCombineGradient, 0) ||
        message.payload.empty() || !injection.Once()) {
      return;
    }
    const size_t rows = message.payload.size() / (sizeof(float) + kRowBytes);
    std::fill_n(message.payload.begin(), rows * sizeof(float), std::byte{0});
  };

  ExpectDetected(With({.on_receive = drop}), injection,
                 NotConserved("step 1, combine gradient, MoE layer 0:"));
}

std::span<uint32_t> CountsOf(std::span<std::byte> contribution) {
  return {reinterpret_cast<uint32_t*>(contribution.data()),
          contribution.size() / sizeof(uint32_t)};
}

// Case 19: a layer or rank whose counts are lost, counted twice, or include
// padding.
TEST_P(ConservationFaults, CountsThatDoNotAddUpAreNoticed) {
  struct Wrong {
    void (*change)(std::span<uint32_t> counts);
    const char* says;
  };
  for (const Wrong& wrong : {
           Wrong{[](std::span<uint32_t> counts) {
                   std::fill(counts.begin(), counts.end(), 0u);
                 },
                 "rank 1 announces 0 assignments"},
           Wrong{[](std::span<uint32_t> counts) {
                   for (uint32_t& count : counts) count *= 2;
                 },
                 "rank 1 announces 128 assignments"},
           Wrong{[](std::span<uint32_t> counts) { ++counts[5]; },
                 "rank 1 announces 65 assignments"},
       }) {
    Injection here;
    const auto miscount = [&](const Place& place, int rank,
                              std::span<std::byte> mine) {
      if (!place.Is(2, OpKind::kCounts, 1) || rank != 1) return;
      wrong.change(CountsOf(mine));
      here.Strike();
    };

    ExpectDetected(
        With({.on_contribute = miscount}), here,
        AllOf(HasSubstr("step 2, counts, MoE layer 1: "), HasSubstr(wrong.says),
              HasSubstr("owns 32 tokens of 2 slots each: 64")));
  }
}

// Case 25: counts are used before the new ones have arrived.
TEST_P(ConservationFaults, CountsOfTheLayerBeforeAreNoticed) {
  std::vector<std::byte> before;
  const auto use_early = [&](const Place& place, int rank,
                             std::span<std::byte> mine) {
    if (rank != 2) return;
    if (place.Is(1, OpKind::kCounts, 0))
      before.assign(mine.begin(), mine.end());
    if (!place.Is(1, OpKind::kCounts, 1)) return;
    ASSERT_NE(std::memcmp(mine.data(), before.data(), mine.size()), 0)
        << "both layers have the same counts: choose another seed";
    std::copy(before.begin(), before.end(), mine.begin());
    injection.Strike();
  };

  ExpectDetected(
      With({.on_contribute = use_early}), injection,
      AllOf(HasSubstr("step 1, dispatch, MoE layer 1"), HasSubstr("rank 2")));
}

// Section 4.1: damage on the wire ends the run.
TEST_P(ConservationFaults, ADamagedMessageEndsTheRun) {
  Scene scene = With({});
  scene.damage = [&](int from, int to, std::span<std::byte> message) {
    if (from != 3 || to != 1) return;
    message.back() ^= std::byte{16};
    injection.Strike();
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 0, dispatch, MoE layer 0"),
                       HasSubstr("from rank 3 to rank 1"),
                       HasSubstr("damaged on the way: payload CRC32C is 0x")));
}

// The same, of one message only, in the middle of a step.
TEST_P(ConservationFaults, OneDamagedMessageAmongManyIsNamed) {
  Scene scene = With({});
  scene.damage = [&](int from, int to, std::span<std::byte> message) {
    const transport::MessageHeader header = transport::HeaderOf(message);
    if (from != 0 || to != 2 || header.step != 2 ||
        header.kind != OpKind::kCombineGradient || !injection.Once()) {
      return;
    }
    message.back() ^= std::byte{16};
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 2, combine gradient, MoE layer"),
                       HasSubstr("from rank 0 to rank 2"),
                       HasSubstr("damaged on the way")));
}

INSTANTIATE_TEST_SUITE_P(Processes, ConservationFaults, testing::Values(1, 2));

}  // namespace
}  // namespace isoloss::faults::conservation_faults_test
