// Whole tensors of one step, written by `--dump`: one HDF5 file with a group
// for each tensor, the graph, and the trailer of trailer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "isoloss/runlog/model_graph.h"
#include "isoloss/runlog/read_limit.h"

namespace isoloss::runlog {

/// A tensor of the whole batch, row-major, rows in an order that does not
/// depend on ranks or processes.
struct DumpedTensor {
  std::string name = {};    ///< "layers.0.attention.wq_activation"
  std::string module = {};  ///< "layers.0.attention.wq"
  std::string kind = {};    ///< "activation"
  int64_t order = 0;        ///< of computation, among all tensors of the step
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values = {};  ///< [rows, cols]
  /// Where blocks down a column end: the ends of all segments that have rows.
  std::vector<int64_t> segment_ends = {};
  /// MX element format of the operand, codes and E8M0 scales: blocks of 32
  /// along a row; empty: the tensor is no such operand.
  std::string format_rowwise = {};
  std::vector<uint8_t> codes_rowwise = {};   ///< [rows, cols]
  std::vector<uint8_t> scales_rowwise = {};  ///< [rows, ceil(cols / 32)]
  /// The same down columns, anew in each segment.
  std::string format_columnwise = {};
  std::vector<uint8_t> codes_columnwise = {};  ///< [rows, cols]
  std::vector<uint8_t> scales_columnwise =
      {};  ///< [blocks of all segments, cols]

  bool operator==(const DumpedTensor&) const = default;
};

struct TensorDump {
  std::string run = {};
  int64_t step = 0;
  std::vector<DumpedTensor> tensors = {};  ///< order ascending
  ModelGraph graph = {};                   ///< that knows all of them
  ReadCharge charge = {};                  ///< no part of what is compared

  bool operator==(const TensorDump& other) const {
    return run == other.run && step == other.step && tensors == other.tensors &&
           graph == other.graph;
  }
};

/// Below the folder of the run log, so that the *.h5 there are run logs only.
inline constexpr const char* kDumpFolder = "dumps";

/// Replaces an existing file in one step.
/// Errors   ShapeError if an array does not have the extent given above;
///          IoError naming the path and the system's reason.
void WriteTensorDump(const TensorDump& dump, const std::filesystem::path& path);

/// Errors   IoError if the file can't be read; FormatError naming file, group
///          and dataset if it is not what WriteTensorDump writes.
TensorDump ReadTensorDump(const std::filesystem::path& path);

}  // namespace isoloss::runlog
