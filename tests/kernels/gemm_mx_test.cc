// Quantisation inside the GEMM: against the definition on adversarial blocks,
// and against products that other tools made (golden/vectors/matmul.h5).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "gemm_cases.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "support/h5_file.h"
#include "support/mx_elements.h"

namespace isoloss::kernels::gemm_mx_test {
namespace {

using isoloss::test_support::GoldenPath;
using isoloss::test_support::H5Array;
using isoloss::test_support::H5File;

/// Rows of one block each. The largest magnitude runs over every exponent with
/// significands at the edges of the scale rules; the others reach far below it
/// (subnormals of the format, zeros of both signs, ties). Some rows hold an
/// infinity or a NaN, some only zeros.
Matrix<float> AdversarialBlocks(size_t length) {
  constexpr uint32_t kEdges[] = {0x000000, 0x000001, 0x3FFFFF, 0x400000,
                                 0x400001, 0x5FFFFF, 0x600000, 0x600001,
                                 0x680001, 0x6FFFFF, 0x700000, 0x700001,
                                 0x780000, 0x7C0000, 0x7FFFFF};
  constexpr size_t kEdgeCount = std::size(kEdges);
  Matrix<float> blocks(255 * kEdgeCount + 30, length);
  const CounterRng rng(3, length);
  for (size_t row = 0; row < blocks.rows(); ++row) {
    const auto exponent = static_cast<uint32_t>(row / kEdgeCount);
    const uint32_t amax = exponent << 23 | kEdges[row % kEdgeCount];
    for (size_t k = 0; k < length; ++k) {
      const uint64_t random = rng.Bits(row * length + k);
      const auto low = static_cast<uint32_t>(random >> 32);
      const auto below = static_cast<uint32_t>(random % 24) << 23;
      uint32_t magnitude = amax > below ? amax - below : 0;
      // Few significant bits make ties; all of them, the general case.
      if (random % 3 == 0) magnitude = magnitude >> 19 << 19;
      if (random % 3 == 1) magnitude -= std::min(magnitude, low & 0x7FFFFF);
      if (row >= 255 * kEdgeCount) magnitude = 0;
      blocks(row, k) = std::bit_cast<float>(magnitude | (low & 0x80000000u));
    }
    const size_t at = row % length;
    blocks(row, at) =
        std::copysign(std::bit_cast<float>(amax), blocks(row, at));
    if (row >= 255 * kEdgeCount + 10) blocks(row, at) = HUGE_VALF;
    if (row >= 255 * kEdgeCount + 20) blocks(row, at) = std::nanf("");
  }
  return blocks;
}

class GemmMxOn : public OnEveryTarget {};
INSTANTIATE_TEST_SUITE_P(Targets, GemmMxOn,
                         ::testing::ValuesIn(SupportedTargets()),
                         TargetTestName);

TEST_P(GemmMxOn, QuantisesEveryBlockAsTheDefinition) {
  for (const size_t length : {1, 5, 31, 32}) {
    const Matrix<float> blocks = AdversarialBlocks(length);
    const Matrix<float> by_columns = Transposed(blocks.view());
    // One column of ones at a time would hide which element is wrong; the unit
    // matrix shows each one (a block with a NaN becomes a row of them).
    Matrix<float> unit(length, length);
    for (size_t i = 0; i < length; ++i) unit(i, i) = 1.0f;
    Matrix<float> result(blocks.rows(), length);
    for (const formats::Format* format : formats::MxElements()) {
      for (const auto mode :
           {formats::ScaleRule::kFloor, formats::ScaleRule::kCeil,
            formats::ScaleRule::kEven, formats::ScaleRule::kRceil}) {
        for (const auto policy : {formats::NonFinitePolicy::kBlockNan,
                                  formats::NonFinitePolicy::kTe}) {
          const formats::Quantization spec{format, mode, policy};
          GemmProblem problem;
          problem.a = {blocks.view(), Contraction::kColumns, &spec};
          problem.b.values = unit.view();
          problem.c = result.view();
          const auto what = [&] {
            return std::string(format->name) + " " +
                   std::string(ScaleRuleName(mode)) + " " +
                   std::string(NonFinitePolicyName(policy)) + ", length " +
                   std::to_string(length);
          };

          ASSERT_TRUE(EqualsScalar(problem)) << what();
          problem.a = {by_columns.view(), Contraction::kRows, &spec};
          ASSERT_TRUE(EqualsScalar(problem)) << what() << ", down the rows";
        }
      }
    }
  }
}

Matrix<float> ToMatrix(const H5Array<float>& array) {
  Matrix<float> matrix(array.rows(), array.cols());
  std::copy(array.values.begin(), array.values.end(), matrix.data());
  return matrix;
}

/// Group names, "/bf16" for one, that hold bit-exact products.
std::vector<std::string> ProductGroups(const H5File& file) {
  const std::string suffix = "/y/seq_f32";
  std::vector<std::string> groups;
  for (const std::string& name : file.DatasetsBelow("/")) {
    if (name.ends_with(suffix)) {
      groups.push_back(name.substr(0, name.size() - suffix.size()));
    }
  }
  return groups;
}

/// The format of operand `name` in "x=e4m3 w=e4m3 dy=e5m2".
const formats::Format& FormatOf(const std::string& formats_text,
                                const std::string& name) {
  std::istringstream words(formats_text);
  for (std::string word; words >> word;) {
    if (word.starts_with(name + "=")) {
      return formats::FormatByName(word.substr(name.size() + 1));
    }
  }
  throw Error(ErrorKind::kFormat, "no format of " + name);
}

formats::ScaleRule ScaleModeOf(std::string upper_case) {
  for (char& c : upper_case) c = static_cast<char>(std::tolower(c));
  return formats::ScaleRuleByName(upper_case);
}

class GemmMxGolden : public GemmMxOn {};
INSTANTIATE_TEST_SUITE_P(Targets, GemmMxGolden,
                         ::testing::ValuesIn(SupportedTargets()),
                         TargetTestName);

TEST_P(GemmMxGolden, ReproducesTheProductsOfALinearLayer) {
  const H5File file(GoldenPath("vectors", "matmul.h5"));
  const std::vector<std::string> groups = ProductGroups(file);
  size_t quantised = 0;
  for (const std::string& group : groups) {
    const Matrix<float> x = ToMatrix(file.Read<float>(group + "/x"));
    const Matrix<float> w = ToMatrix(file.Read<float>(group + "/w"));
    const Matrix<float> dy = ToMatrix(file.Read<float>(group + "/dy"));
    formats::Quantization x_spec, w_spec, dy_spec;
    const bool mx = file.Has(group + "/q");
    if (mx) {
      const std::string names = file.StringAttribute("formats", group);
      const auto mode = ScaleModeOf(file.StringAttribute("scale_mode", group));
      x_spec = {&FormatOf(names, "x"), mode};
      w_spec = {&FormatOf(names, "w"), mode};
      dy_spec = {&FormatOf(names, "dy"), mode};
      ++quantised;
    }
    const auto operand = [mx](const Matrix<float>& values, Contraction side,
                              const formats::Quantization& spec) {
      return Operand{values.view(), side, mx ? &spec : nullptr};
    };
    const auto kColumns = Contraction::kColumns;
    const auto kRows = Contraction::kRows;
    Matrix<float> y(x.rows(), w.rows());
    Matrix<float> dx(x.rows(), x.cols());
    Matrix<float> dw(w.rows(), w.cols());

    Gemm(
        {operand(x, kColumns, x_spec), operand(w, kColumns, w_spec), y.view()});
    Gemm(
        {operand(dy, kColumns, dy_spec), operand(w, kRows, w_spec), dx.view()});
    Gemm({operand(dy, kRows, dy_spec), operand(x, kRows, x_spec), dw.view()});

    EXPECT_TRUE(SameResults(
        y.view(), ToMatrix(file.Read<float>(group + "/y/seq_f32")).view()))
        << group;
    EXPECT_TRUE(SameResults(
        dx.view(), ToMatrix(file.Read<float>(group + "/dx/seq_f32")).view()))
        << group;
    EXPECT_TRUE(SameResults(
        dw.view(), ToMatrix(file.Read<float>(group + "/dw/seq_f32")).view()))
        << group;
  }

  EXPECT_GT(quantised, 0u);
  EXPECT_GT(groups.size(), quantised) << "no group without quantisation";
}

}  // namespace
}  // namespace isoloss::kernels::gemm_mx_test
