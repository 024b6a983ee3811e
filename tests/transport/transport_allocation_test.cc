// Warm operations of `loop` allocate no memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "fleet.h"

namespace {
std::atomic<long> allocations{0};

void* Counted(size_t bytes, size_t alignment) {
  ++allocations;
  void* memory = std::aligned_alloc(
      alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// NOLINTBEGIN(misc-new-delete-overloads)
void* operator new(size_t bytes) { return Counted(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Counted(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Counted(bytes, static_cast<size_t>(alignment));
}
// Not inline, lest the compiler sees free() meet what operator new returned.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory,
                                       std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory,
                                         std::align_val_t) noexcept {
  std::free(memory);
}
// NOLINTEND(misc-new-delete-overloads)

namespace isoloss::transport {
namespace {

TEST(LoopTransport, AllocatesNothingOnceWarm) {
  Executor executor(1);
  const auto transport = MakeTransport("loop", {.ranks = 16}, executor);
  const Traffic traffic = UnevenTraffic();
  int round = 0;
  // Made once: a std::function of more than two pointers allocates itself.
  const Produce produce = [&](int rank, Outbox& outbox) {
    traffic.Fill(round, rank, 16, outbox);
  };
  const Expect expect = [&](int rank, std::span<MessageSize> sizes) {
    traffic.Expect(round, rank, sizes);
  };
  const Consume consume = [&](int rank, const Inbox& inbox) {
    traffic.Verify(round, rank, 16, inbox);
  };
  const auto step = [&] {
    for (round = 0; round < 6; ++round) {
      transport->AllToAll({OpKind::kDispatch}, produce, expect, consume);
      transport->Barrier();
    }
  };
  step();
  step();  // merges what the first step has split

  const long before = allocations;
  step();

  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace isoloss::transport
