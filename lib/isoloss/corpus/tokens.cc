#include "isoloss/corpus/tokens.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "isoloss/base/error.h"

namespace isoloss::corpus {
namespace {

class MemoryTokens final : public Tokens {
 public:
  explicit MemoryTokens(TokenVector tokens) : tokens_(std::move(tokens)) {}

  size_t size() const override {
    return std::visit([](const auto& stored) { return stored.size(); },
                      tokens_);
  }

  size_t width() const override {
    return std::visit([](const auto& stored) { return sizeof(stored[0]); },
                      tokens_);
  }

  void Copy(size_t first, std::span<int32_t> out) const override {
    std::visit(
        [&](const auto& stored) {
          std::copy_n(stored.begin() + static_cast<ptrdiff_t>(first),
                      out.size(), out.begin());
        },
        tokens_);
  }

 private:
  TokenVector tokens_;
};

class JoinedTokens final : public Tokens {
 public:
  JoinedTokens(std::shared_ptr<const Tokens> front, size_t count,
               std::vector<int32_t> back)
      : front_(std::move(front)), count_(count), back_(std::move(back)) {
    ISOLOSS_ASSERT(count_ <= front_->size());
  }

  size_t size() const override { return count_ + back_.size(); }
  size_t width() const override { return front_->width(); }

  void Copy(size_t first, std::span<int32_t> out) const override {
    const size_t in_front =
        first < count_ ? std::min(out.size(), count_ - first) : 0;
    if (in_front > 0) front_->Copy(first, out.first(in_front));
    const auto rest = out.subspan(in_front);
    if (rest.empty()) return;
    std::ranges::copy(
        std::span(back_).subspan(first + in_front - count_, rest.size()),
        rest.begin());
  }

 private:
  std::shared_ptr<const Tokens> front_;
  size_t count_;
  std::vector<int32_t> back_;
};

}  // namespace

void Tokens::ReadThrough(const Sink& sink) {
  constexpr size_t kPiece = 1 << 15;  // a block of TokenFiles has no more
  std::vector<int32_t> piece;
  for (size_t first = 0; first < size(); first += kPiece) {
    piece.resize(std::min(kPiece, size() - first));
    Copy(first, piece);
    sink(piece);
  }
}

std::shared_ptr<Tokens> InMemory(TokenVector tokens) {
  return std::make_shared<MemoryTokens>(std::move(tokens));
}

std::shared_ptr<Tokens> Joined(std::shared_ptr<const Tokens> front,
                               size_t count, std::vector<int32_t> back) {
  return std::make_shared<JoinedTokens>(std::move(front), count,
                                        std::move(back));
}

}  // namespace isoloss::corpus
