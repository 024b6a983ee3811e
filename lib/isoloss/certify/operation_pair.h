// Sets the recorded operations of one step and rank of two runs side by side,
// and finds the first one that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/operations/operation.h"

namespace isoloss::certify {

/// One tensor differs; places count from 0.
struct TensorDifference {
  std::string name = {};
  int64_t elements = 0;  ///< that differ
  int64_t of = 0;
  int64_t zeros = 0;  ///< elements that differ and are zero in one of both
  std::vector<size_t> place = {};  ///< of the first one
  std::string first = {};          ///< its value in both files, as text
  std::string other = {};

  std::string Text() const;
};

/// An operation is done in parts, such as the three products of a layer.
struct OperationPart {
  size_t operation = 0;  ///< its number in the first file
  std::string name = {};
  std::vector<std::string> inputs = {};
  std::vector<std::string> results = {};
};

/// Returns the parts of all operations in the order of computation: forward,
/// backward from the last operation on, then updates. Every tensor that either
/// operation has is in one of its parts. `others` has for each operation of
/// `file` its partner, or null.
std::vector<OperationPart> PartsOf(
    const operations::OperationFile& file,
    const std::vector<const operations::Operation*>& others);

struct OperationDifference {
  enum class What {
    kResult,   ///< inputs are equal, a result is not
    kInput,    ///< an input differs, and all results before it are equal
    kSetting,  ///< an attribute differs
    kMissing,  ///< one file lacks the operation
  };
  What what = What::kResult;
  int64_t step = 0;
  int64_t rank = 0;
  size_t place = 0;  ///< of the part in the order of computation
  const operations::Operation* first = nullptr;  ///< in the two files
  const operations::Operation* other = nullptr;  ///< null: it is missing
  std::string type = {};
  std::string module = {};
  std::string part = {};
  TensorDifference tensor = {};
  /// The part before it, whose results are equal; "": there is none.
  std::string after = {};

  std::string Text() const;
};

struct OperationPair {
  int64_t operations = 0;
  int64_t tensors = 0;
  std::optional<OperationDifference> first = {};
  /// Names all further parts that have equal inputs and another result.
  std::vector<std::string> others = {};
};

/// Compares all tensors and attributes bit by bit, but NaN equals NaN.
/// Operations are matched by type, module and number of the call. The
/// difference points into the files.
OperationPair Compare(const operations::OperationFile& first,
                      const operations::OperationFile& other);

/// Returns for each operation of `first` the one of `other` with the same type,
/// module and number of the call; null if there is none.
std::vector<const operations::Operation*> Partners(
    const operations::OperationFile& first,
    const operations::OperationFile& other);

/// Returns nothing if both are equal.
std::optional<TensorDifference> DifferenceOf(const std::string& name,
                                             const operations::Floats& first,
                                             const operations::Floats& other);
/// Returns nothing if both have equal tensors of that name, or neither has any.
std::optional<TensorDifference> DifferenceOf(
    const std::string& name, const operations::Operation& first,
    const operations::Operation& other);

}  // namespace isoloss::certify
