#include "isoloss/base/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace isoloss {

struct Digest::State {
  XXH3_state_t* xxh = XXH3_createState();

  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Digest::Digest() : state_(std::make_unique<State>()) {}
Digest::~Digest() = default;

void Digest::Update(const void* bytes, size_t count) {
  if (count > 0) XXH3_64bits_update(state_->xxh, bytes, count);
}

uint64_t Digest::Value() const { return XXH3_64bits_digest(state_->xxh); }

uint64_t DigestOf(const void* bytes, size_t count) {
  return XXH3_64bits(bytes, count);
}

std::string DigestToHex(uint64_t digest) {
  return fmt::format("{:016x}", digest);
}

}  // namespace isoloss
