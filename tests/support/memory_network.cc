#include "support/memory_network.h"

#include <cstring>
#include <mutex>
#include <utility>

namespace isoloss::transport {

struct MemoryNetwork::Shared {
  Shared(int n, size_t most, Hook wanted)
      : size(n),
        most_parcel_bytes(most),
        hook(std::move(wanted)),
        silent(static_cast<size_t>(n)),
        mailboxes(static_cast<size_t>(n)) {}

  struct Mailbox {
    std::mutex mutex;
    std::deque<Parcel> parcels;
  };

  void Deliver(int destination, Parcel parcel) {
    Mailbox& mailbox = mailboxes[static_cast<size_t>(destination)];
    const std::lock_guard lock(mailbox.mutex);
    mailbox.parcels.push_back(std::move(parcel));
  }

  const int size;
  const size_t most_parcel_bytes;
  const Hook hook;
  std::vector<std::atomic<bool>> silent;
  std::vector<Mailbox> mailboxes;
};

class MemoryNetwork::Endpoint final : public Link {
 public:
  Endpoint(int index, Shared& shared)
      : index_(index),
        shared_(shared),
        posted_(static_cast<size_t>(shared.size)),
        held_back_(static_cast<size_t>(shared.size)) {}

  int index() const override { return index_; }
  int size() const override { return shared_.size; }
  size_t most_parcel_bytes() const override {
    return shared_.most_parcel_bytes;
  }

  void Post(int peer, bool more, std::span<const std::byte> bytes,
            int* /*outstanding*/) override {
    const auto to = static_cast<size_t>(peer);
    const int number = posted_[to]++;
    if (IsSilent(index_) || IsSilent(peer)) return;
    Parcel parcel = Copy(more, bytes);
    Fate fate = Fate::kDeliver;
    if (shared_.hook) {
      fate = shared_.hook(index_, peer, number,
                          {parcel.data.data(), bytes.size()});
    }
    if (fate == Fate::kDrop) return;
    if (fate == Fate::kHoldBack) {
      held_back_[to].push_back(std::move(parcel));
      return;
    }
    if (fate == Fate::kDuplicate) {
      shared_.Deliver(peer, Copy(more, parcel.span()));
    }
    shared_.Deliver(peer, std::move(parcel));
    for (Parcel& late : held_back_[to]) shared_.Deliver(peer, std::move(late));
    held_back_[to].clear();
  }

  bool Poll(Parcel& parcel) override {
    if (IsSilent(index_)) return false;
    Shared::Mailbox& mailbox = shared_.mailboxes[static_cast<size_t>(index_)];
    const std::lock_guard lock(mailbox.mutex);
    if (mailbox.parcels.empty()) return false;
    parcel = std::move(mailbox.parcels.front());
    mailbox.parcels.pop_front();
    return true;
  }

 private:
  bool IsSilent(int index) const {
    return shared_.silent[static_cast<size_t>(index)];
  }
  Parcel Copy(bool more, std::span<const std::byte> bytes) const {
    Parcel parcel;
    parcel.peer = index_;
    parcel.more = more;
    parcel.bytes = bytes.size();
    parcel.data.ResizeUninitialized(1, bytes.size());
    if (!bytes.empty()) {
      std::memcpy(parcel.data.data(), bytes.data(), bytes.size());
    }
    return parcel;
  }

  const int index_;
  Shared& shared_;
  std::vector<int> posted_;
  std::vector<std::vector<Parcel>> held_back_;
};

MemoryNetwork::MemoryNetwork(int size, size_t most_parcel_bytes, Hook hook)
    : shared_(
          std::make_unique<Shared>(size, most_parcel_bytes, std::move(hook))) {
  for (int index = 0; index < size; ++index) {
    endpoints_.push_back(std::make_unique<Endpoint>(index, *shared_));
  }
}

MemoryNetwork::~MemoryNetwork() = default;

Link& MemoryNetwork::endpoint(int index) {
  return *endpoints_[static_cast<size_t>(index)];
}

void MemoryNetwork::Silence(int index) {
  shared_->silent[static_cast<size_t>(index)] = true;
}

}  // namespace isoloss::transport
