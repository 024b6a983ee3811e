// Writes and reads the whole tensors of one step for `--dump`: one HDF5 file
// with a group for each tensor, the graph, and the trailer of hdf5/trailer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/hdf5/read_limit.h"
#include "isoloss/runlog/model_graph.h"

namespace isoloss::runlog {

/// Holds a quantised operand that is no MX blocks. It consists of one tensor
/// for each segment, as a GEMM reads them, with columns along the contraction.
/// All numbers of a tensor stand together, row-major.
struct DumpedCells {
  /// Three numbers: the rows and the columns that share a scale, 0 if all of a
  /// tensor share it, and the number to a multiple of which the tensor's
  /// columns are filled up.
  std::vector<int64_t> extents = {};
  std::vector<int32_t> codes = {};
  std::vector<float> scales = {};         ///< what codes stand for
  std::vector<float> tensor_scales = {};  ///< times these, one for each tensor

  bool operator==(const DumpedCells&) const = default;
};

/// True if a dumped operand's format says that it has cells. Then the format is
/// a description in words joined by dots, else the element format of MX blocks.
bool HasCells(std::string_view format);

/// Describes one tensor of an operand with cells, and where its numbers begin.
struct CellTensor {
  int64_t first_row = 0;  ///< among the dumped ones
  int64_t rows = 0;       ///< of the operand
  int64_t cols = 0;       ///< filled up
  int64_t cell_rows = 1;
  int64_t cell_cols = 1;
  size_t first_code = 0;
  size_t first_scale = 0;

  int64_t cells_in_row() const { return (cols + cell_cols - 1) / cell_cols; }
  int64_t cells() const {
    return (rows + cell_rows - 1) / cell_rows * cells_in_row();
  }
};

/// Holds a tensor of the whole batch, row-major. The order of rows does not
/// depend on ranks or processes.
struct DumpedTensor {
  std::string name = {};    ///< "layers.0.attention.wq_activation"
  std::string module = {};  ///< "layers.0.attention.wq"
  std::string kind = {};    ///< "activation"
  int64_t order = 0;        ///< of computation, among all tensors of the step
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values = {};  ///< [rows, cols]
  /// Blocks down a column end here: at the ends of all segments that have rows.
  std::vector<int64_t> segment_ends = {};
  /// An MX operand has an element format, codes and E8M0 scales, in blocks of
  /// 32 along a row. The format is empty if the tensor is no such operand.
  std::string format_rowwise = {};
  std::vector<uint8_t> codes_rowwise = {};   ///< [rows, cols]
  std::vector<uint8_t> scales_rowwise = {};  ///< [rows, ceil(cols / 32)]
  /// The operand is also stored down columns, with new blocks in each segment.
  std::string format_columnwise = {};
  std::vector<uint8_t> codes_columnwise = {};  ///< [rows, cols]
  std::vector<uint8_t> scales_columnwise =
      {};  ///< [blocks of all segments, cols]
  /// Cells replace blocks if the format HasCells.
  DumpedCells cells_rowwise = {};
  DumpedCells cells_columnwise = {};

  bool operator==(const DumpedTensor&) const = default;
};

/// Returns the cells of each segment. Requires extents as described.
std::vector<CellTensor> CellTensorsOf(const DumpedTensor& tensor,
                                      bool columnwise);

struct TensorDump {
  std::string run = {};
  int64_t step = 0;
  std::vector<DumpedTensor> tensors = {};  ///< order ascending
  ModelGraph graph = {};                   ///< that knows all of them
  hdf5::ReadCharge charge = {};            ///< no part of what is compared

  std::vector<std::string> TensorNames() const;
  bool operator==(const TensorDump& other) const {
    return run == other.run && step == other.step && tensors == other.tensors &&
           graph == other.graph;
  }
};

/// Dumps lie below the folder of the run log, so that the *.h5 there are run
/// logs only.
inline constexpr const char* kDumpFolder = "dumps";

/// Replaces an existing file in one step.
/// Errors   ShapeError if an array does not have the extent given above;
///          IoError naming the path and the system's reason.
void WriteTensorDump(const TensorDump& dump, const std::filesystem::path& path);

/// Errors   IoError if the file can't be read; FormatError naming file, group
///          and dataset if it is not what WriteTensorDump writes.
TensorDump ReadTensorDump(const std::filesystem::path& path);

}  // namespace isoloss::runlog
