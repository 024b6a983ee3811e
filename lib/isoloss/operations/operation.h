// Holds what any trainer computed in one step, operation by operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/hdf5/read_limit.h"
#include "isoloss/oracle/estimate.h"

namespace isoloss::operations {

/// The numbers of one tensor are row-major.
template <typename T>
struct Array {
  std::vector<size_t> extent = {};
  std::vector<T> values = {};
  /// Floats have the type that the trainer held them in; codes their format.
  std::string type = {};
  /// Has a word for each dimension of the mesh: "Shard(0) Replicate"; "": the
  /// file does not say how ranks held the tensor.
  std::string placements = {};

  size_t Extent(size_t axis) const {
    return axis < extent.size() ? extent[axis] : 1;
  }
  /// All axes but the last one make up the rows.
  MatrixView<const float> Rows() const {
    const size_t cols = extent.empty() ? 1 : extent.back();
    return {values.data(), cols == 0 ? 0 : values.size() / cols, cols};
  }
};

using Floats = Array<float>;
using Integers = Array<int64_t>;
using Codes = Array<uint8_t>;

/// An operation has tensors and numbers by the names of docs/check-tensors.md.
struct Operation {
  std::string type = {};    ///< "linear", "router", ...
  std::string module = {};  ///< as the trainer names it
  std::map<std::string, Floats, std::less<>> floats = {};
  std::map<std::string, Integers, std::less<>> integers = {};
  std::map<std::string, Codes, std::less<>> codes = {};
  std::map<std::string, double, std::less<>> numbers = {};
  std::map<std::string, std::string, std::less<>> texts = {};

  /// Returns null if the trainer does not have the tensor.
  const Floats* Find(std::string_view name) const;
  const Integers* FindIntegers(std::string_view name) const;
  const Codes* FindCodes(std::string_view name) const;
  double Number(std::string_view name, double otherwise) const;
  /// Returns "" if the trainer does not say it.
  std::string Text(std::string_view name) const;
  bool is_linear() const {
    return type == "linear" || type == "grouped_linear";
  }
  bool is_update() const { return type == "adamw" || type == "muon"; }
};

/// Products of linear layers read six operands, two for each role. Their codes
/// and scales are called `fprop_x_codes`, `fprop_x_scales`, ...
struct LinearOperand {
  const char* name;
  const char* tensor;  ///< that it is made of
};
inline constexpr LinearOperand kLinearOperands[] = {{"fprop_x", "x"},
                                                    {"fprop_w", "weight"},
                                                    {"dgrad_dy", "grad_output"},
                                                    {"dgrad_w", "weight"},
                                                    {"wgrad_dy", "grad_output"},
                                                    {"wgrad_x", "x"}};
/// Returns the operand whose name begins a tensor's; null: it has none.
const LinearOperand* OperandOfTensor(std::string_view tensor);

/// A file holds the operations of one step and rank, in order of computation.
struct OperationFile {
  std::string path = {};
  std::string run = {};
  int64_t step = 1;
  int64_t rank = 0;
  int64_t ranks = 1;
  /// Says which of `data_ranks` parts of the step's batch the tokens are.
  int64_t data_rank = 0;
  int64_t data_ranks = 1;
  std::string mesh = {};        ///< "dp=2 tp=4", outermost first; may be empty
  std::string coordinate = {};  ///< of the rank in the mesh: "1 0"
  std::string arm = {};
  std::string recipe = {};
  std::optional<int64_t> seed = {};
  // The trainer may tell these numbers of this rank's step.
  int64_t tokens = 1;
  std::optional<int64_t> recording = {};  ///< no other recording has the number
  std::optional<double> loss_nats = {};
  std::optional<double> grad_norm = {};
  std::string initial_weights_digest = {};
  /// A line gives the reason why an operation of the step is not here.
  std::string unrecorded = {};
  /// A line tells what in the step contradicts itself, as the recorder found.
  std::string contradictions = {};
  std::vector<Operation> operations = {};
  std::vector<hdf5::ReadCharge> charges = {};

  /// Returns "FILE: operation 3 (linear, layers.0.wq)".
  std::string Where(size_t operation) const;
};

/// Spreads codes of the format `e2m1x2`, two in a byte, to one in a byte. The
/// low half is the one with the even index along the last axis.
void SpreadCodes(Operation& operation);

/// Returns the grid of a tensor's last rounding; nothing if its type has none.
std::optional<oracle::Grid> GridOf(const Floats& tensor);
/// Returns the grid of a result that needs one.
/// Errors   FormatError that begins with `where`, for a type without a grid.
oracle::Grid GridOf(const Floats& tensor, const std::string& name,
                    const std::string& where);

/// Adds the numbers of moments that the file holds as codes and scales. Their
/// type is the codes' format.
/// Errors   FormatError naming file, operation and tensor.
void DecodeStates(OperationFile& file);

/// Checks that the tensors of every operation are there and fit each other.
/// Each place that one tensor names must be in another one.
/// Errors   FormatError naming file, operation and tensor.
void CheckExtents(const OperationFile& file);

}  // namespace isoloss::operations
