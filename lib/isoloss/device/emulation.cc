#include "isoloss/device/emulation.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "isoloss/base/error.h"
#include "isoloss/device/forms.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/kernels/fused_sum.h"

namespace isoloss::device {

namespace {

/// A device has this many addresses. They cost nothing until they are used.
constexpr size_t kAddresses = size_t{1} << 36;

/// Rows of one side of a warp's products, as an accumulator reads them.
template <size_t kRows>
struct FragmentSteps {
  float values[kRows][kFragmentSteps];
  int16_t exponents[kRows][kFragmentSteps];

  /// Sets a word's pair of steps.
  void Set(uint32_t row, uint32_t step, uint32_t word) {
    for (uint32_t i = 0; i < 2; ++i) {
      const auto half = static_cast<uint16_t>(word >> 16 * i);
      const float value = formats::DecodeBf16(half);
      values[row][step + i] = value;
      exponents[row][step + i] =
          static_cast<int16_t>(kernels::FloatExponentOf(value));
    }
  }
  kernels::Elements From(uint32_t row, size_t step) const {
    return {values[row] + step, exponents[row] + step};
  }
};

}  // namespace

EmulatedMemory::EmulatedMemory(bool closes) : closes_(closes) {
  void* const room = mmap(nullptr, kAddresses, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  first_ = static_cast<char*>(room);
  // Few large pages are closed and opened sooner than many small ones.
  madvise(room, kAddresses, MADV_HUGEPAGE);
}

EmulatedMemory::~EmulatedMemory() { munmap(first_, kAddresses); }

/// Returns the first place between the blocks that is large enough.
size_t EmulatedMemory::PlaceFor(size_t bytes) const {
  size_t place = 0;
  for (const auto& [begin, end] : blocks_) {
    if (begin - place >= bytes) return place;
    place = end;
  }
  return place;
}

void* EmulatedMemory::Allocate(size_t bytes) {
  const size_t room = CeilOf(bytes == 0 ? 1 : bytes, kAlignment) * kAlignment;
  const size_t place = PlaceFor(room);
  if (room > kAddresses - place) throw std::bad_alloc();
  blocks_.emplace(place, place + room);
  used_ = std::max(used_, place + room);
  Protect(true);
  // Memory that nobody has written holds NaN.
  std::memset(first_ + place, 0xFF, bytes);
  if (closes_) Protect(false);
  return first_ + place;
}

void EmulatedMemory::Free(void* memory) noexcept {
  if (memory == nullptr) return;
  blocks_.erase(static_cast<size_t>(static_cast<char*>(memory) - first_));
}

void EmulatedMemory::Protect(bool open) {
  if (!open && !closes_) return;
  ISOLOSS_ASSERT(
      mprotect(first_, used_, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

void EmulatedMemory::SetZero(void* memory, size_t bytes) {
  const Opened opened(*this);
  std::memset(memory, 0, bytes);
}

void EmulatedMemory::Copy(const void* from, size_t bytes, void* to) {
  const Opened opened(*this);
  std::memcpy(to, from, bytes);
}

void EmulatedMemory::CopyToHost(const void* from, size_t bytes, void* host) {
  const Opened opened(*this);
  std::memcpy(host, from, bytes);
}

void EmulatedMemory::CopyFromHost(const void* host, size_t bytes, void* to) {
  const Opened opened(*this);
  std::memcpy(to, host, bytes);
}

void BegunCopies::Await(size_t pending) {
  if (group_ends_.size() <= pending) return;
  const auto groups = static_cast<std::ptrdiff_t>(group_ends_.size() - pending);
  const size_t count = group_ends_[static_cast<size_t>(groups) - 1];
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(copies_[i].to, copies_[i].from, copies_[i].bytes);
  }
  copies_.erase(copies_.begin(),
                copies_.begin() + static_cast<std::ptrdiff_t>(count));
  group_ends_.erase(group_ends_.begin(), group_ends_.begin() + groups);
  for (size_t& end : group_ends_) end -= count;
}

void AddProducts(const kernels::Accumulator& accumulator,
                 std::span<const Fragments, kWarp> fragments) {
  FragmentSteps<kFragmentRows> a;
  FragmentSteps<kFragmentCols> b;
  for (uint32_t i = 0; i < kWarp; ++i) {
    const FragmentLane lane(i);
    for (uint32_t word = 0; word < 4; ++word) {
      a.Set(lane.RowOfA(word), lane.StepOfA(word), fragments[i].a[word]);
    }
    for (uint32_t word = 0; word < 2; ++word) {
      b.Set(lane.row, lane.StepOfB(word), fragments[i].b[word]);
    }
  }
  for (uint32_t i = 0; i < kWarp; ++i) {
    const FragmentLane lane(i);
    for (uint32_t j = 0; j < 2; ++j) {
      for (float* sums : {fragments[i].upper, fragments[i].lower}) {
        const uint32_t row = lane.row + (sums == fragments[i].upper ? 0 : 8);
        for (size_t k = 0; k < kFragmentSteps; k += accumulator.steps) {
          sums[j] = kernels::FusedSum(accumulator, sums[j], a.From(row, k),
                                      b.From(2 * lane.pair + j, k),
                                      accumulator.steps);
        }
      }
    }
  }
}

std::unique_ptr<Executor> MakeEmulation(EmulationOrder order) {
  return std::make_unique<DeviceExecutor<Emulation>>(
      1, std::make_unique<Emulation>(order));
}

}  // namespace isoloss::device
