#include "tampered_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "isoloss/base/matrix.h"

namespace isoloss::faults {
namespace {

using transport::Inbox;
using transport::MessageSize;
using transport::Outbox;

/// All ones: NaN in BF16 and FP32.
constexpr std::byte kPoison{0xFF};

class TamperedOutbox final : public Outbox {
 public:
  TamperedOutbox(const Place& place, int rank, const Faults& faults,
                 Outbox& inner)
      : place_(place), rank_(rank), faults_(faults), inner_(inner) {}

  std::span<std::byte> Add(int destination, const MessageSize& size) override {
    MessageSize sent = size;
    if (faults_.resize) {
      sent = faults_.resize({place_, rank_, destination, {}}, size);
    }
    Draft& draft = drafts_.emplace_back();
    draft.to = destination;
    if (sent.rows > 0) draft.sent = inner_.Add(destination, sent);
    draft.written = draft.sent;
    if (sent.bytes != size.bytes) {
      draft.whole.ResizeUninitialized(1, size.bytes);
      draft.written = {draft.whole.data(), size.bytes};
    }
    if (faults_.poison) {
      std::fill(draft.written.begin(), draft.written.end(), kPoison);
    }
    return draft.written;
  }
  void Finish() {
    for (const Draft& draft : drafts_) {
      if (faults_.on_send) {
        faults_.on_send({place_, rank_, draft.to, draft.written});
      }
      if (draft.sent.data() != draft.written.data() && !draft.sent.empty()) {
        std::memcpy(draft.sent.data(), draft.written.data(), draft.sent.size());
      }
    }
  }

 private:
  struct Draft {
    int to = 0;
    std::span<std::byte> sent;
    std::span<std::byte> written;
    Matrix<std::byte> whole;  // if they differ in size
  };

  const Place& place_;
  int rank_;
  const Faults& faults_;
  Outbox& inner_;
  std::deque<Draft> drafts_;
};

class TamperedInbox final : public Inbox {
 public:
  TamperedInbox(const Place& place, int rank, int ranks, const Faults& faults,
                const Inbox& inner)
      : copies_(static_cast<size_t>(ranks)) {
    for (int from = 0; from < ranks; ++from) {
      const auto payload = inner.From(from);
      if (payload.empty()) continue;
      Matrix<std::byte>& copy = copies_[static_cast<size_t>(from)];
      copy.ResizeUninitialized(1, payload.size());
      std::memcpy(copy.data(), payload.data(), payload.size());
      faults.on_receive({place, from, rank, {copy.data(), copy.size()}});
    }
  }
  std::span<const std::byte> From(int source) const override {
    const Matrix<std::byte>& copy = copies_[static_cast<size_t>(source)];
    return {copy.data(), copy.size()};
  }

 private:
  std::vector<Matrix<std::byte>> copies_;
};

}  // namespace

void TamperedTransport::AllToAll(const transport::Operation& operation,
                                 const transport::Produce& produce,
                                 const transport::Expect& expect,
                                 const transport::Consume& consume) {
  const Place place = {step(), operation};
  if (!TakesPart(place)) return;
  inner_->AllToAll(
      operation,
      [&](int rank, Outbox& outbox) {
        TamperedOutbox tampered(place, rank, faults_, outbox);
        produce(rank, tampered);
        tampered.Finish();
      },
      expect,
      [&](int rank, const Inbox& inbox) {
        if (!faults_.on_receive) return consume(rank, inbox);
        consume(rank, TamperedInbox(place, rank, ranks(), faults_, inbox));
      });
}

std::span<const std::byte> TamperedTransport::AllGather(
    const transport::Operation& operation, size_t bytes,
    const std::function<void(int rank, std::span<std::byte> mine)>& fill) {
  const Place place = {step(), operation};
  if (!TakesPart(place)) {
    left_out_.assign(bytes * static_cast<size_t>(ranks()), std::byte{0});
    return left_out_;
  }
  return inner_->AllGather(operation, bytes,
                           [&](int rank, std::span<std::byte> mine) {
                             fill(rank, mine);
                             if (faults_.on_contribute) {
                               faults_.on_contribute(place, rank, mine);
                             }
                           });
}

}  // namespace isoloss::faults
