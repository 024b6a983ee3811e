// What a trainer of any kind computed in one step, operation by operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/runlog/read_limit.h"

namespace isoloss::operations {

/// Numbers of one tensor, row-major.
template <typename T>
struct Array {
  std::vector<size_t> extent = {};
  std::vector<T> values = {};
  /// Of floats: the type in which the trainer held them. Of codes: the format.
  std::string type = {};

  size_t Extent(size_t axis) const {
    return axis < extent.size() ? extent[axis] : 1;
  }
  /// All axes but the last one are rows.
  MatrixView<const float> Rows() const {
    const size_t cols = extent.empty() ? 1 : extent.back();
    return {values.data(), cols == 0 ? 0 : values.size() / cols, cols};
  }
};

using Floats = Array<float>;
using Integers = Array<int64_t>;
using Codes = Array<uint8_t>;

/// One operation: tensors and numbers by the names of docs/check-tensors.md.
struct Operation {
  std::string type = {};    ///< "linear", "router", ...
  std::string module = {};  ///< the trainer's name of it
  std::map<std::string, Floats, std::less<>> floats = {};
  std::map<std::string, Integers, std::less<>> integers = {};
  std::map<std::string, Codes, std::less<>> codes = {};
  std::map<std::string, double, std::less<>> numbers = {};
  std::map<std::string, std::string, std::less<>> texts = {};

  /// Null if the trainer does not have it.
  const Floats* Find(std::string_view name) const;
  const Integers* FindIntegers(std::string_view name) const;
  const Codes* FindCodes(std::string_view name) const;
  double Number(std::string_view name, double otherwise) const;
  bool is_linear() const {
    return type == "linear" || type == "grouped_linear";
  }
};

/// What one file holds: those of one step and rank, in the order of
/// computation.
struct OperationFile {
  std::string path = {};
  std::string run = {};
  int64_t step = 1;
  int64_t rank = 0;
  int64_t ranks = 1;
  std::string arm = {};
  std::string recipe = {};
  std::optional<int64_t> seed = {};
  // Of this rank's step, if the trainer told them.
  int64_t tokens = 1;
  std::optional<double> loss_nats = {};
  std::optional<double> grad_norm = {};
  std::string initial_weights_digest = {};
  /// A line for each reason why an operation of the step is not here.
  std::string unrecorded = {};
  std::vector<Operation> operations = {};
  std::vector<runlog::ReadCharge> charges = {};

  /// "FILE: operation 3 (linear, layers.0.wq)".
  std::string Where(size_t operation) const;
};

/// The grid of a tensor's last rounding.
/// Errors   FormatError that begins with `where`, of a type without a grid.
oracle::Grid GridOf(const Floats& tensor, const std::string& name,
                    const std::string& where);

/// Whether its type has one of those grids.
bool HasGrid(const Floats& tensor);

/// That the tensors of every operation are there and fit each other, and that
/// each place that one names is in another.
/// Errors   FormatError naming file, operation and tensor.
void CheckExtents(const OperationFile& file);

}  // namespace isoloss::operations
