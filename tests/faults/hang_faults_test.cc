// Ranks that stop, stall or part company: nothing may hang
// (docs/distributed.md, "Faults").
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "isoloss/transport/message.h"
#include "stage.h"

namespace isoloss::faults::hang_faults_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using transport::MemoryNetwork;
using transport::OpKind;
using Fate = MemoryNetwork::Fate;

/// Also the limit: all must be over one second after it.
constexpr double kDeadline = 0.5;

Scene OverMemoryLinks(int processes) {
  Scene scene;
  scene.processes = processes;
  scene.deadline_seconds = kDeadline;
  return scene;
}

/// The header of a frame on the wire.
transport::MessageHeader FrameHeader(std::span<const std::byte> frame) {
  return transport::HeaderOf(frame);
}

bool IsFrame(std::span<const std::byte> bytes, int64_t step, OpKind kind) {
  const transport::MessageHeader header = FrameHeader(bytes);
  return header.magic == transport::Magic::kFrame && header.step == step &&
         header.kind == kind;
}

// Case 11: one completion is lost.
TEST(HangFaults, ALostFrameEndsTheRunAtTheDeadline) {
  Injection injection;
  Scene scene = OverMemoryLinks(2);
  scene.wire = [&](int from, int, int, std::span<std::byte> bytes) {
    const bool lost =
        from == 1 && IsFrame(bytes, 1, OpKind::kCombine) && injection.Once();
    return lost ? Fate::kDrop : Fate::kDeliver;
  };

  ExpectDetected(
      scene, injection,
      AllOf(HasSubstr("step 1, combine, MoE layer 0"), HasSubstr(" waited "),
            HasSubstr("for process 1"), HasSubstr("the deadline is 0.5 s")));
}

// Case 28: one process leaves an operation out.
TEST(HangFaults, ASkippedOperationIsNamedOnBothSides) {
  Injection injection;
  Scene scene = OverMemoryLinks(2);
  scene.faults[1].take_part = [&](const Place& place, transport::Transport&) {
    if (!place.Is(1, OpKind::kCombine, 0)) return true;
    injection.Strike();
    return false;
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 1, combine, MoE layer 0"),
                       HasSubstr("step 1, counts, MoE layer 1"),
                       HasSubstr("process 0"), HasSubstr("process 1")));
}

// Case 30: two users of one communicator.
TEST(HangFaults, AnOperationOfAnotherUserIsNamed) {
  Injection injection;
  Scene scene = OverMemoryLinks(2);
  scene.faults[1].take_part = [&](const Place& place,
                                  transport::Transport& inner) {
    if (place.Is(1, OpKind::kDispatch, 1) && injection.Once()) inner.Barrier();
    return true;
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 1, dispatch, MoE layer 1"),
                       HasSubstr("step 1, barrier"), HasSubstr("process 0"),
                       HasSubstr("process 1")));
}

// Section 4.1: a process is killed or stopped.
TEST(HangFaults, ADeadProcessIsNamed) {
  Injection injection;
  MemoryNetwork* network = nullptr;
  Scene scene = OverMemoryLinks(4);
  scene.network = &network;
  scene.faults[3].take_part = [&](const Place& place, transport::Transport&) {
    if (place.Is(2, OpKind::kDispatchGradient, 1) && injection.Once()) {
      network->Silence(3);
    }
    return true;
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 2, dispatch gradient, MoE layer 1"),
                       HasSubstr(" waited "), HasSubstr("for process 3")));
}

// A process that works for longer than the others wait.
TEST(HangFaults, ASlowProcessIsNamed) {
  Injection injection;
  Scene scene = OverMemoryLinks(2);
  scene.faults[1].on_send = [&](const Message& message) {
    if (message.place.Is(1, OpKind::kDispatch, 1) && injection.Once()) {
      std::this_thread::sleep_for(std::chrono::duration<double>(2 * kDeadline));
    }
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 1, dispatch, MoE layer 1"),
                       HasSubstr(" waited "), HasSubstr("for process 1")));
}

// A rank whose thread dies; whoever waits for it learns why.
TEST(HangFaults, ARankThatFailsIsNamed) {
  for (const char* transport : {"loop", "threads", "shuffled"}) {
    Injection injection;
    Scene scene;
    scene.deadline_seconds = kDeadline;
    scene.overrides = {std::string("parallel.transport=") + transport};
    scene.faults[0].on_send = [&](const Message& message) {
      if (message.from == 2 &&
          message.place.Is(2, OpKind::kCombineGradient, 0)) {
        injection.Strike();
        throw std::runtime_error("out of luck");
      }
    };

    ExpectDetected(scene, injection,
                   AllOf(HasSubstr("step 2, combine gradient, MoE layer 0"),
                         HasSubstr("rank 2 failed in phase produce"),
                         HasSubstr("out of luck")));
  }
}

TEST(HangFaults, AProcessWhoseRankFailsTellsTheOthers) {
  Injection injection;
  Scene scene = OverMemoryLinks(4);
  scene.faults[1].on_receive = [&](const Message& message) {
    if (message.place.Is(1, OpKind::kDispatch, 0) && injection.Once()) {
      throw std::runtime_error("out of luck");
    }
  };

  ExpectDetected(
      scene, injection,
      AllOf(HasSubstr("process 1: step 1, dispatch, MoE layer 0: rank 1 failed "
                      "in phase consume"),
            HasSubstr("out of luck")));
}

// Section 4.1: a frame comes twice.
TEST(HangFaults, ADuplicateFrameIsRefused) {
  Injection injection;
  Scene scene = OverMemoryLinks(2);
  scene.wire = [&](int from, int, int, std::span<std::byte> bytes) {
    const bool doubled =
        from == 1 && IsFrame(bytes, 1, OpKind::kDispatch) && injection.Once();
    return doubled ? Fate::kDuplicate : Fate::kDeliver;
  };

  ExpectDetected(scene, injection,
                 AllOf(HasSubstr("step 1, "), HasSubstr("from process 1"),
                       HasSubstr("dispatch, MoE layer 0")));
}

// Frames overtake each other: sequence numbers put them in order.
TEST(HangFaults, AFrameThatComesLateChangesNoBit) {
  Injection injection;
  Scene scene = OverMemoryLinks(2);
  scene.deadline_seconds = 20;
  scene.parity = true;
  scene.wire = [&](int from, int, int, std::span<std::byte> bytes) {
    const bool late =
        from == 1 && IsFrame(bytes, 1, OpKind::kDispatch) && injection.Once();
    return late ? Fate::kHoldBack : Fate::kDeliver;
  };

  ExpectHarmless(scene, injection);
}

// A frame's own header is damaged: the run ends, long before the deadline.
TEST(HangFaults, ADamagedFrameHeaderEndsTheRun) {
  Injection injection;
  Scene scene = OverMemoryLinks(2);
  scene.wire = [&](int from, int, int, std::span<std::byte> bytes) {
    if (from == 1 && IsFrame(bytes, 1, OpKind::kDispatch) && injection.Once()) {
      bytes[20] ^= std::byte{2};
    }
    return Fate::kDeliver;
  };

  ExpectDetected(
      scene, injection,
      AllOf(HasSubstr("step 1, "), HasSubstr("process 0, frame from process 1"),
            HasSubstr("damaged on the way: header CRC32C is 0x")));
}

}  // namespace
}  // namespace isoloss::faults::hang_faults_test
