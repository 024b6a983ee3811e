#include "isoloss/hdf5/read_limit.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "isoloss/base/error.h"

namespace isoloss::hdf5 {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kUsualMiB = 384;
constexpr size_t kMostMiB = kMiB;  // a tebibyte
constexpr const char* kVariable = "ISOLOSS_MEMORY_MIB";

/// Counts the bytes of all files that are held, beyond twice their sizes on
/// disk.
std::atomic<size_t> held{0};

size_t LimitOf(const char* text) {
  if (text == nullptr) return kUsualMiB * kMiB;
  const std::string_view given(text);
  size_t mebibytes = 0;
  const auto [end, error] =
      std::from_chars(given.data(), given.data() + given.size(), mebibytes);
  if (error != std::errc{} || end != given.data() + given.size() ||
      mebibytes < 1 || mebibytes > kMostMiB) {
    ThrowError(ErrorKind::kConfig,
               "{} is `{}`, but must be a number of MiB from 1 to {}. Correct "
               "it, or leave it out for {}.",
               kVariable, given, kMostMiB, kUsualMiB);
  }
  return mebibytes * kMiB;
}

}  // namespace

size_t ReadLimit() { return LimitOf(std::getenv(kVariable)); }

HeldBytes::HeldBytes(size_t bytes) : bytes_(bytes) { held.fetch_add(bytes); }

HeldBytes::~HeldBytes() { held.fetch_sub(bytes_); }

ReadCharge Charge(const std::string& name, size_t file_bytes,
                  size_t value_bytes) {
  const size_t bytes = value_bytes - std::min(value_bytes, 2 * file_bytes);
  auto charge = std::make_shared<const HeldBytes>(bytes);
  const size_t all = held.load();
  if (all > ReadLimit()) {
    ThrowError(ErrorKind::kFormat,
               "{}: holds {} MiB of values in {} KiB, and all files that are "
               "held here take {} MiB beyond twice their sizes, but may take "
               "{}. Pass fewer files, or set {} to more if you trust them.",
               name, value_bytes / kMiB, file_bytes / 1024, all / kMiB,
               ReadLimit() / kMiB, kVariable);
  }
  return charge;
}

ReadCharge Lessened(const ReadCharge& charge, size_t value_bytes) {
  if (charge == nullptr) return nullptr;
  const size_t bytes = charge->bytes();
  return std::make_shared<const HeldBytes>(bytes -
                                           std::min(bytes, value_bytes));
}

}  // namespace isoloss::hdf5
