// Puts together what all ranks and micro-batches recorded of one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/layouts/recording.h"

namespace isoloss::layouts {

/// All calls of a module's operations of one type, on all ranks.
struct OperationKey {
  std::string type;
  std::string module;
  auto operator<=>(const OperationKey&) const = default;

  bool is_linear() const {
    return type == "linear" || type == "grouped_linear";
  }
};

/// An update belongs to a parameter; all other operations belong to tokens.
bool IsUpdate(const OperationKey& key);

/// One call of an operation on one rank, or on a group of ranks that has the
/// same tokens.
struct Piece {
  const operations::Operation* operation = nullptr;
  size_t file = 0;
  size_t index = 0;  ///< of the operation in its file
  size_t call = 0;
  size_t first_expert = 0;
};

/// A tensor of the whole batch. Rows are tokens, or those of a parameter.
struct Whole {
  Matrix<float> values;
  std::string type = {};  ///< in which the trainer held it
  std::vector<size_t> piece_of_row = {};

  MatrixView<const float> view() const { return values.view(); }
};

/// Two ranks hold a tensor that should be the same, and it is not.
struct Parting {
  OperationKey key;
  std::string tensor;
  const operations::Floats* first;
  const operations::Floats* second;
  int64_t first_rank;
  int64_t second_rank;
};

class Batch {
 public:
  Batch(const Recording& recording, int64_t step);

  const Recording& recording() const { return recording_; }
  int64_t step() const { return step_; }
  /// Returns all operations in the order of computation.
  const std::vector<OperationKey>& order() const { return order_; }
  /// Returns calls, with micro-batches outermost, then parts of the batch;
  /// empty if the side has no such operation.
  const std::vector<Piece>& Of(const OperationKey& key) const;
  size_t micro_batches() const { return micro_batches_; }
  const std::vector<Parting>& partings() const { return partings_; }

  /// Returns the rows of all pieces below each other; nothing if a piece lacks
  /// the tensor or has another width.
  std::optional<Whole> Rows(const OperationKey& key,
                            const std::string& tensor) const;
  /// Returns a tensor that all pieces share. Experts of several ranks are put
  /// together along the first axis.
  std::optional<Whole> Shared(const OperationKey& key,
                              const std::string& tensor) const;
  /// Returns whether any piece has it.
  bool Has(const OperationKey& key, const std::string& tensor) const;
  const operations::OperationFile& FileOf(const Piece& piece) const {
    return recording_.files[piece.file];
  }

 private:
  void AddFile(size_t f);
  void DropReplicas(const OperationKey& key, std::vector<Piece>& pieces);
  bool IsReplica(const OperationKey& key, const Piece& first,
                 const Piece& second);

  const Recording& recording_;
  int64_t step_;
  std::vector<OperationKey> order_;
  std::map<OperationKey, std::vector<Piece>> pieces_;
  std::vector<Parting> partings_;
  size_t micro_batches_ = 1;
};

}  // namespace isoloss::layouts
