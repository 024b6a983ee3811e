#include "isoloss/device/emulation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "isoloss/base/error.h"
#include "isoloss/device/forms.h"

namespace isoloss::device {

EmulatedMemory::~EmulatedMemory() {
  for (const auto& [first, bytes] : pages_) munmap(first, bytes);
}

void* EmulatedMemory::Allocate(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = CeilOf(bytes == 0 ? 1 : bytes, page) * page;
  void* const first =
      mmap(nullptr, rounded, closes_ ? PROT_NONE : PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (first == MAP_FAILED) throw std::bad_alloc();
  pages_.emplace(first, rounded);
  const Opened opened(*this);
  // Memory that nobody has written holds NaN.
  std::memset(first, 0xFF, bytes);
  return first;
}

void EmulatedMemory::Free(void* memory) noexcept {
  const auto found = pages_.find(memory);
  if (found == pages_.end()) return;
  munmap(found->first, found->second);
  pages_.erase(found);
}

void EmulatedMemory::Protect(bool open) {
  if (!closes_) return;
  for (const auto& [first, bytes] : pages_) {
    ISOLOSS_ASSERT(
        mprotect(first, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
  }
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

std::unique_ptr<Executor> MakeEmulation(EmulationOrder order) {
  return std::make_unique<DeviceExecutor<Emulation>>(
      1, std::make_unique<Emulation>(order));
}

}  // namespace isoloss::device
