// Says what a corpus asks of the place where its tokens are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "isoloss/corpus/corpus.h"

namespace isoloss::corpus {

/// Holds the tokens of a corpus, in memory or elsewhere.
class Tokens {
 public:
  using Sink = std::function<void(std::span<const int32_t> tokens)>;

  virtual ~Tokens() = default;

  virtual size_t size() const = 0;
  /// Returns the bytes of a token where it is stored.
  virtual size_t width() const = 0;
  /// Writes tokens [first, first + out.size()), which exist, to `out`.
  /// Thread-safe.
  virtual void Copy(size_t first, std::span<int32_t> out) const = 0;
  /// Gives all tokens to `sink`, in order and piece by piece. A corpus calls it
  /// once, before the first Copy.
  virtual void ReadThrough(const Sink& sink);
};

std::shared_ptr<Tokens> InMemory(TokenVector tokens);

/// Returns the first `count` of `front`, and `back` behind them.
std::shared_ptr<Tokens> Joined(std::shared_ptr<const Tokens> front,
                               size_t count, std::vector<int32_t> back);

}  // namespace isoloss::corpus
