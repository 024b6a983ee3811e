// Defines "bit-equal" of logs and goldens by a 64-bit digest of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace isoloss {

/// Digests a stream of bytes with XXH3-64 (seed 0). The digest of a stream does
/// not depend on how it was cut into Update calls.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Update(const void* bytes, size_t count);
  void Update(std::string_view text) { Update(text.data(), text.size()); }
  uint64_t Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the XXH3-64 of one run of bytes.
uint64_t DigestOf(const void* bytes, size_t count);
inline uint64_t DigestOf(std::string_view text) {
  return DigestOf(text.data(), text.size());
}

/// Returns 16 lower-case hexadecimal digits.
std::string DigestToHex(uint64_t digest);

}  // namespace isoloss
