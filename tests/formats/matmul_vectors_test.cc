// matmul.h5: the six operand views of a linear layer, and the FP32 chains over
// their dequantised values.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <string>

#include "comparison.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"

namespace isoloss::formats::matmul_vectors_test {
namespace {

using isoloss::test_support::H5File;

/// c[i, j] = the FP32 chain acc = fma(a[i, k], b[j, k], acc), k ascending.
Matrix<float> Chain(MatrixView<const float> a, MatrixView<const float> b) {
  Matrix<float> c(a.rows(), b.rows());
  for (size_t i = 0; i < a.rows(); ++i) {
    for (size_t j = 0; j < b.rows(); ++j) {
      float acc = 0.0f;
      for (size_t k = 0; k < a.cols(); ++k)
        acc = std::fma(a(i, k), b(j, k), acc);
      c(i, j) = acc;
    }
  }
  return c;
}

/// The six views of x [T, K], w [N, K] and dy [T, N]: blocks run along rows.
struct Views {
  Matrix<float> x_k, w_k, dy_n, wt_n, dyt_t, xt_t;
};

Matrix<float> Copy(MatrixView<const float> values) {
  return Transposed(Transposed(values).view());
}

Views ReadViews(const H5File& file, const std::string& group) {
  const auto x = file.Read<float>(group + "/x");
  const auto w = file.Read<float>(group + "/w");
  const auto dy = file.Read<float>(group + "/dy");
  return {Copy(View(x)),       Copy(View(w)),        Copy(View(dy)),
          Transposed(View(w)), Transposed(View(dy)), Transposed(View(x))};
}

/// Quantises `values` in place and compares with q/<view>.
void QuantizeView(const H5File& file, const std::string& view,
                  const Quantization& spec, Matrix<float>& values) {
  const MxMatrix q = QuantizeMx(values.view(), spec);
  ExpectMatrix(file, view + "/scale", q.scales);
  ExpectMatrix(file, view + "/codes", q.codes);
  values = DequantizeMx(q, *spec.element);
}

void ExpectProducts(const H5File& file, const std::string& group,
                    const Views& v) {
  ExpectMatrix(file, group + "/y/seq_f32", Chain(v.x_k.view(), v.w_k.view()));
  ExpectMatrix(file, group + "/dx/seq_f32",
               Chain(v.dy_n.view(), v.wt_n.view()));
  ExpectMatrix(file, group + "/dw/seq_f32",
               Chain(v.dyt_t.view(), v.xt_t.view()));
}

/// The format of `operand` in an attribute such as "x=e4m3 w=e4m3 dy=e5m2".
const Format& FormatOf(const std::string& operand, const std::string& formats) {
  const std::string padded = " " + formats + " ";
  const size_t key = padded.find(" " + operand + "=");
  if (key == std::string::npos) {
    throw Error(ErrorKind::kFormat, operand + " is not in: " + formats);
  }
  const size_t first = key + operand.size() + 2;
  return FormatByName(
      std::string_view(padded).substr(first, padded.find(' ', first) - first));
}

ScaleRule ModeOf(std::string name) {
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  return ScaleRuleByName(name);
}

TEST(MatmulVectors, SixViewsAndTheirProductsAreTorchaos) {
  const H5File file = OpenVectors("matmul.h5");
  const std::set<std::string> groups = Groups(file, "", "mx");
  ASSERT_FALSE(groups.empty());
  for (const std::string& group : groups) {
    SCOPED_TRACE(group);
    const std::string formats = file.StringAttribute("formats", group);
    const ScaleRule mode = ModeOf(file.StringAttribute("scale_mode", group));
    const auto spec = [&](const std::string& operand) {
      return Quantization{&FormatOf(operand, formats), mode,
                          NonFinitePolicy::kBlockNan};
    };
    Views v = ReadViews(file, group);

    QuantizeView(file, group + "/q/x_k", spec("x"), v.x_k);
    QuantizeView(file, group + "/q/w_k", spec("w"), v.w_k);
    QuantizeView(file, group + "/q/dy_n", spec("dy"), v.dy_n);
    QuantizeView(file, group + "/q/wt_n", spec("w"), v.wt_n);
    QuantizeView(file, group + "/q/dyt_t", spec("dy"), v.dyt_t);
    QuantizeView(file, group + "/q/xt_t", spec("x"), v.xt_t);

    ExpectProducts(file, group, v);
  }
}

TEST(MatmulVectors, Bf16OperandsAreUnchangedByRoundingAndGiveTheChain) {
  const H5File file = OpenVectors("matmul.h5");
  Views v = ReadViews(file, "bf16");

  for (Matrix<float>* operand :
       {&v.x_k, &v.w_k, &v.dy_n, &v.wt_n, &v.dyt_t, &v.xt_t}) {
    for (size_t i = 0; i < operand->size(); ++i) {
      float& value = operand->data()[i];
      value = RoundToBf16(value);
    }
  }

  ExpectMatrix(file, "bf16/x", v.x_k);
  ExpectMatrix(file, "bf16/w", v.w_k);
  ExpectMatrix(file, "bf16/dy", v.dy_n);
  ExpectProducts(file, "bf16", v);
}

/// Quantised and dequantised along rows (FLOOR, microxcaling's rule).
Matrix<float> FloorOperand(const Matrix<float>& values,
                           std::string_view element) {
  const Quantization spec{&FormatByName(element), ScaleRule::kFloor,
                          NonFinitePolicy::kBlockNan};
  return DequantizeMx(QuantizeMx(values.view(), spec), *spec.element);
}

/// |actual - exact| <= gamma_K sum |a b| for any order of summation, K the
/// length of the sum: gamma_K = K u / (1 - K u), u = 2^-24.
void ExpectWithinSummationBound(const H5File& file, const std::string& dataset,
                                const Matrix<float>& actual, size_t depth) {
  const auto exact = file.Read<double>(dataset + "_exact_f64");
  const auto absolute = file.Read<double>(dataset + "_abs_f64");
  ASSERT_EQ(exact.rows(), actual.rows());
  ASSERT_EQ(exact.cols(), actual.cols());
  const double ku = static_cast<double>(depth) * 0x1p-24;
  Comparison comparison;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error =
        std::fabs(static_cast<double>(actual.data()[i]) - exact.values[i]);
    const double bound = ku / (1 - ku) * absolute.values[i];
    comparison.Row(error <= bound, [&] {
      return fmt::format("{}[{}]: error {} > {}", dataset, i, error, bound);
    });
  }
  comparison.ExpectAllEqual(exact.values.size());
}

TEST(MatmulVectors, MicroxcalingsOperandsAndProductsWithTailsAreReproduced) {
  // It rounds half-away unless told otherwise; only the `even` group is ours.
  const H5File file = OpenVectors("matmul.h5");
  const std::string group = "microxcaling_linear_even_tails";
  Views v = ReadViews(file, group);
  v = {FloorOperand(v.x_k, "e4m3"),   FloorOperand(v.w_k, "e4m3"),
       FloorOperand(v.dy_n, "e5m2"),  FloorOperand(v.wt_n, "e4m3"),
       FloorOperand(v.dyt_t, "e5m2"), FloorOperand(v.xt_t, "e4m3")};

  // Stored in the operands' natural orientation.
  ExpectMatrixValues(file, group + "/dq/x_k", v.x_k);
  ExpectMatrixValues(file, group + "/dq/w_k", v.w_k);
  ExpectMatrixValues(file, group + "/dq/dy_n", v.dy_n);
  ExpectMatrixValues(file, group + "/dq/w_n", Transposed(v.wt_n.view()));
  ExpectMatrixValues(file, group + "/dq/dy_t", Transposed(v.dyt_t.view()));
  ExpectMatrixValues(file, group + "/dq/x_t", Transposed(v.xt_t.view()));
  ExpectWithinSummationBound(file, group + "/y",
                             Chain(v.x_k.view(), v.w_k.view()), v.x_k.cols());
  ExpectWithinSummationBound(
      file, group + "/dx", Chain(v.dy_n.view(), v.wt_n.view()), v.dy_n.cols());
  ExpectWithinSummationBound(file, group + "/dw",
                             Chain(v.dyt_t.view(), v.xt_t.view()),
                             v.dyt_t.cols());
}

}  // namespace
}  // namespace isoloss::formats::matmul_vectors_test
