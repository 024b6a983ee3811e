#include "isoloss/layouts/batch.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <tuple>

#include "isoloss/operations/check.h"

namespace isoloss::layouts {
namespace {

using operations::Floats;
using operations::Operation;

bool HaveSameBits(const Floats& a, const Floats& b) {
  return a.extent == b.extent &&
         std::memcmp(a.values.data(), b.values.data(),
                     a.values.size() * sizeof(float)) == 0;
}

/// Returns the first expert of an operation, 0 if it has all.
size_t FirstExpertOf(const Operation& operation) {
  const double first = operation.Number("first_expert", 0);
  constexpr double kMostExperts = 1 << 20;
  return first > 0 && first < kMostExperts ? static_cast<size_t>(first) : 0;
}

}  // namespace

bool IsUpdate(const OperationKey& key) {
  constexpr std::string_view kOfTokens[] = {
      "linear", "grouped_linear", "router", "dispatch", "combine", "loss"};
  return std::ranges::find(kOfTokens, key.type) == std::end(kOfTokens);
}

Batch::Batch(const Recording& recording, int64_t step)
    : recording_(recording), step_(step) {
  for (const size_t f : recording.Of(step)) AddFile(f);
  size_t calls = std::numeric_limits<size_t>::max();
  for (auto& [key, pieces] : pieces_) {
    DropReplicas(key, pieces);
    if (IsUpdate(key)) continue;
    size_t last = 0;
    for (const Piece& piece : pieces) last = std::max(last, piece.call);
    calls = std::min(calls, last + 1);
  }
  if (calls != std::numeric_limits<size_t>::max()) micro_batches_ = calls;
  for (auto& [key, pieces] : pieces_) {
    size_t last = 0;
    for (const Piece& piece : pieces) last = std::max(last, piece.call);
    const size_t uses = std::max<size_t>(1, (last + 1) / micro_batches_);
    std::ranges::stable_sort(pieces, {}, [&](const Piece& piece) {
      return std::tuple(piece.call % uses, piece.call / uses,
                        FileOf(piece).data_rank);
    });
  }
}

/// Ranks may leave operations out, so those that are new come after the
/// operation before them. If there is none, they are of a later pipeline stage.
void Batch::AddFile(size_t f) {
  std::map<OperationKey, size_t> calls;
  std::map<std::string, size_t> experts;  // of weights that have only some
  size_t place = order_.size();
  const std::vector<Operation>& operations = recording_.files[f].operations;
  for (size_t i = 0; i < operations.size(); ++i) {
    const OperationKey key = {operations[i].type, operations[i].module};
    const auto found = std::ranges::find(order_, key);
    if (found == order_.end()) {
      order_.insert(order_.begin() + static_cast<ptrdiff_t>(place), key);
      ++place;
    } else {
      place = static_cast<size_t>(found - order_.begin()) + 1;
    }
    pieces_[key].push_back({.operation = &operations[i],
                            .file = f,
                            .index = i,
                            .call = calls[key]++,
                            .first_expert = FirstExpertOf(operations[i])});
    if (key.type == "grouped_linear") {
      for (const std::string& name : operations::UpdateNamesOf(key.module)) {
        experts[name] = FirstExpertOf(operations[i]);
      }
    } else if (IsUpdate(key) && experts.contains(key.module)) {
      pieces_[key].back().first_expert = experts[key.module];
    }
  }
}

bool Batch::IsReplica(const OperationKey& key, const Piece& first,
                      const Piece& second) {
  const auto& a = FileOf(first);
  const auto& b = FileOf(second);
  if (first.call != second.call || first.first_expert != second.first_expert) {
    return false;
  }
  return IsUpdate(key) || a.data_rank == b.data_rank;
}

/// Keeps the first of several ranks that have the same piece, and notes where
/// another one differs.
void Batch::DropReplicas(const OperationKey& key, std::vector<Piece>& pieces) {
  std::vector<Piece> kept;
  for (const Piece& piece : pieces) {
    const auto first = std::ranges::find_if(
        kept, [&](const Piece& other) { return IsReplica(key, other, piece); });
    if (first == kept.end()) {
      kept.push_back(piece);
      continue;
    }
    for (const auto& [name, tensor] : piece.operation->floats) {
      const Floats* other = first->operation->Find(name);
      if (other == nullptr || HaveSameBits(*other, tensor)) continue;
      partings_.push_back(
          {key, name, other, &tensor, FileOf(*first).rank, FileOf(piece).rank});
    }
  }
  pieces = std::move(kept);
}

const std::vector<Piece>& Batch::Of(const OperationKey& key) const {
  static const std::vector<Piece> kNone;
  const auto found = pieces_.find(key);
  return found == pieces_.end() ? kNone : found->second;
}

bool Batch::Has(const OperationKey& key, const std::string& tensor) const {
  return std::ranges::any_of(Of(key), [&](const Piece& piece) {
    return piece.operation->Find(tensor) != nullptr;
  });
}

std::optional<Whole> Batch::Rows(const OperationKey& key,
                                 const std::string& tensor) const {
  const std::vector<Piece>& pieces = Of(key);
  size_t rows = 0;
  std::optional<size_t> cols;
  for (const Piece& piece : pieces) {
    const Floats* part = piece.operation->Find(tensor);
    if (part == nullptr) return std::nullopt;
    const MatrixView<const float> view = part->Rows();
    if (cols && *cols != view.cols()) return std::nullopt;
    cols = view.cols();
    rows += view.rows();
  }
  if (!cols) return std::nullopt;
  Whole whole;
  whole.type = pieces.front().operation->Find(tensor)->type;
  whole.values.ResizeUninitialized(rows, *cols);
  float* to = whole.values.data();
  for (size_t p = 0; p < pieces.size(); ++p) {
    const Floats& part = *pieces[p].operation->Find(tensor);
    to = std::ranges::copy(part.values, to).out;
    whole.piece_of_row.insert(whole.piece_of_row.end(), part.Rows().rows(), p);
  }
  return whole;
}

std::optional<Whole> Batch::Shared(const OperationKey& key,
                                   const std::string& tensor) const {
  std::map<size_t, const Floats*> parts;  // by first expert
  for (const Piece& piece : Of(key)) {
    const Floats* part = piece.operation->Find(tensor);
    if (part != nullptr) {
      parts.try_emplace(piece.first_expert, part);
    }
  }
  if (parts.empty()) return std::nullopt;
  Whole whole;
  whole.type = parts.begin()->second->type;
  std::vector<float> values;
  const size_t cols = parts.begin()->second->Rows().cols();
  for (const auto& [first, part] : parts) {
    if (part->Rows().cols() != cols) return std::nullopt;
    values.insert(values.end(), part->values.begin(), part->values.end());
  }
  whole.values.ResizeUninitialized(cols == 0 ? 0 : values.size() / cols, cols);
  std::ranges::copy(values, whole.values.data());
  return whole;
}

}  // namespace isoloss::layouts
