// Collects whole tensors of a step from the rows that processes hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/mesh.h"
#include "isoloss/model/tap.h"
#include "isoloss/runlog/tensor_dump.h"

namespace isoloss::probes {

/// Collects tensors of one step at a time; one may come in several parts, of
/// shares of the batch. Rows stand in the order of the whole batch: tokens
/// ascending, experts ascending and in each the dispatch units.
/// A quantised operand's codes and scales are those that GEMMs compute with.
class TensorDumper {
 public:
  /// `graph` knows all tensors that are added; it must outlive the dumper.
  explicit TensorDumper(const runlog::ModelGraph& graph) : graph_(graph) {}

  /// `patterns` are as in ProbeOptions, but an empty list takes no tensor.
  void Begin(int64_t step, std::vector<std::string> patterns);
  /// Takes the tensor if its name matches. The call is then collective.
  void Add(const model::Tensor& tensor, expert_parallel::Mesh& mesh);
  /// Takes a router's choice as "<module>_expert_ids", [tokens, slots], if its
  /// name or that of rows of its experts matches. The call is then collective.
  /// The choice has the order of the next tensor, as it is no tensor of the
  /// model and takes no place.
  void AddRouting(std::string_view module, MatrixView<const int32_t> expert_ids,
                  size_t first_token, expert_parallel::Mesh& mesh);
  /// Process 0 puts the parts together and writes folder/run.dump-000120.h5 if
  /// there is any tensor, and makes the folder if need be.
  /// Errors   IoError naming the file.
  void Write(const std::filesystem::path& folder, const std::string& run);

 private:
  struct Collected {
    runlog::DumpedTensor head;   ///< without values
    model::Tensor quantisation;  ///< without all else
    std::vector<int32_t> words;  ///< its rows, as they travel
  };

  bool Matches(std::string_view name) const;
  bool MatchesRowsOf(const std::string& expert_ids) const;
  void Collect(const std::string& name, int64_t order,
               const model::Tensor& tensor, expert_parallel::Mesh& mesh);

  const runlog::ModelGraph& graph_;
  std::vector<std::string> patterns_;
  int64_t step_ = 0;
  std::map<std::string, int64_t> orders_;  // of all tensors of the step
  std::vector<Collected> collected_;
};

/// Returns "NAME.dump-000120.h5".
std::string DumpFileName(const std::string& run, int64_t step);

}  // namespace isoloss::probes
