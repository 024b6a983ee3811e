// Rows that travel: dispatch and combine.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_map>

#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/precision/operands.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Estimate;
using oracle::Grid;

// ---- dispatch ---------------------------------------------------------------

/// Row m is row `token(m)` of `tokens`.
Comparison CompareRows(const MatrixView<const float>& rows,
                       const MatrixView<const float>& tokens,
                       const std::function<int64_t(size_t)>& token) {
  Comparison comparison(Grid::kFp32);
  for (size_t m = 0; m < rows.rows(); ++m) {
    const int64_t t = token(m);
    for (size_t d = 0; d < rows.cols(); ++d) {
      const float wanted = t < 0 ? 0.0f : tokens(static_cast<size_t>(t), d);
      comparison.AddExact(m, d, rows(m, d), wanted);
    }
  }
  return comparison;
}

/// The token whose bits each row has, whoever sent it; -1: none.
std::vector<int64_t> TokensByBits(const MatrixView<const float>& rows,
                                  const MatrixView<const float>& tokens) {
  const auto text = [](const MatrixView<const float>& matrix, size_t row) {
    return std::string_view(reinterpret_cast<const char*>(matrix.Row(row)),
                            matrix.cols() * sizeof(float));
  };
  std::unordered_map<std::string_view, int64_t> places;
  for (size_t t = 0; t < tokens.rows(); ++t) {
    places.emplace(text(tokens, t), static_cast<int64_t>(t));
  }
  std::vector<int64_t> result;
  for (size_t m = 0; m < rows.rows(); ++m) {
    const auto found = places.find(text(rows, m));
    result.push_back(found == places.end() ? -1 : found->second);
  }
  return result;
}

struct Rounded {
  const char* name;
  const char* sentence;
  Matrix<float> (*tokens)(const MatrixView<const float>& tokens);
};

Matrix<float> Cast(const MatrixView<const float>& tokens, const char* format) {
  Matrix<float> result(tokens.rows(), tokens.cols());
  for (size_t r = 0; r < tokens.rows(); ++r) {
    for (size_t c = 0; c < tokens.cols(); ++c) {
      result(r, c) =
          formats::RoundToFormat(formats::FormatByName(format), tokens(r, c),
                                 formats::Overflow::kSaturate);
    }
  }
  return result;
}

template <formats::ScaleRule kRule>
Matrix<float> Mx(const MatrixView<const float>& tokens) {
  return oracle::ScalarDequantize(
      oracle::ScalarQuantize(tokens, precision::MxOperand("e4m3", kRule)),
      tokens.cols());
}

constexpr Rounded kRounded[] = {
    {"rounded_bf16", "rows were rounded to BF16",
     [](const MatrixView<const float>& t) { return Cast(t, "bf16"); }},
    {"rounded_e4m3", "rows were cast to E4M3 without a scale",
     [](const MatrixView<const float>& t) { return Cast(t, "e4m3"); }},
    {"rounded_mx_rceil",
     "rows were quantised to MXFP8 blocks with scales rounded up",
     Mx<formats::ScaleRule::kRceil>},
    {"rounded_mx_floor",
     "rows were quantised to MXFP8 blocks with scales of the rule floor",
     Mx<formats::ScaleRule::kFloor>}};

std::vector<Trial> DispatchTrials(const MatrixView<const float>& rows,
                                  const MatrixView<const float>& tokens,
                                  const Integers& source) {
  const auto shifted = [&](int64_t by) {
    return [&rows, &tokens, &source, by] {
      return std::optional(
          CompareRows(rows, tokens, [&source, by](size_t m) -> int64_t {
            const auto place = static_cast<int64_t>(m) + by;
            const auto count = static_cast<int64_t>(source.values.size());
            return source.values[static_cast<size_t>((place + count) % count)];
          }));
    };
  };
  std::vector<Trial> trials = {
      {"rows_shifted", "each row is that of the place after it", shifted(1)},
      {"rows_shifted_back", "each row is that of the place before it",
       shifted(-1)}};
  for (const Rounded& rounded : kRounded) {
    trials.push_back(
        {rounded.name, rounded.sentence, [&rows, &tokens, &source, &rounded] {
           const Matrix<float> other = rounded.tokens(tokens);
           return std::optional(
               CompareRows(rows, other.view(),
                           [&source](size_t m) { return source.values[m]; }));
         }});
  }
  return trials;
}

// ---- combine ----------------------------------------------------------------

/// What of a combine may be otherwise.
struct CombineRule {
  bool weights = true;
  int addends = 1;  ///< how often the addend is added
  bool bf16_sums = false;
  bool bf16_products = false;
  enum class Skip { kNone, kFirst, kLast } skip = Skip::kNone;
  size_t skip_begin = 0;  ///< rows that are left out
  size_t skip_end = 0;
  bool addend_last = false;
};

class Combine {
 public:
  explicit Combine(const OperationCase& given)
      : rows_(given.operation.Find("rows")->Rows()),
        source_(*given.operation.FindIntegers("source")),
        weights_(given.operation.Find("weights")),
        addend_(given.operation.Find("addend")),
        output_(*given.operation.Find("output")),
        grid_(GridOf(output_, "output", given.where)),
        of_token_(output_.extent[0]) {
    for (size_t m = 0; m < source_.values.size(); ++m) {
      of_token_[static_cast<size_t>(source_.values[m])].push_back(m);
    }
  }

  bool has_weights() const { return weights_ != nullptr; }
  bool has_addend() const { return addend_ != nullptr; }
  Grid grid() const { return grid_; }

  Comparison Compare(const CombineRule& rule) const {
    Comparison comparison(grid_);
    const MatrixView<const float> output = output_.Rows();
    for (size_t t = 0; t < output.rows(); ++t) {
      for (size_t d = 0; d < output.cols(); ++d) {
        comparison.Add(t, d, output(t, d), Sum(rule, t, d));
      }
    }
    return comparison;
  }

 private:
  bool IsSkipped(const CombineRule& rule, size_t token, size_t row) const {
    const std::vector<size_t>& rows = of_token_[token];
    return (row >= rule.skip_begin && row < rule.skip_end) ||
           (rule.skip == CombineRule::Skip::kFirst && row == rows.front()) ||
           (rule.skip == CombineRule::Skip::kLast && row == rows.back());
  }

  /// Any order of FP32: each of n terms is rounded once as a product and takes
  /// part in n additions at most. Sums in BF16 have the order of rows.
  Estimate Sum(const CombineRule& rule, size_t token, size_t column) const {
    const double addend =
        addend_ == nullptr
            ? 0.0
            : rule.addends *
                  static_cast<double>(addend_->Rows()(token, column));
    double sum = rule.addend_last ? 0.0 : addend;
    double size = std::fabs(addend);
    size_t terms = 1;
    for (const size_t row : of_token_[token]) {
      if (IsSkipped(rule, token, row)) continue;
      double product = static_cast<double>(rows_(row, column));
      if (weights_ != nullptr && rule.weights) {
        product *= static_cast<double>(weights_->values[row]);
      }
      if (rule.bf16_products) {
        product = static_cast<double>(RoundTo(Grid::kBf16, product));
      }
      sum += product;
      if (rule.bf16_sums) {
        sum = static_cast<double>(RoundTo(Grid::kBf16, sum));
      }
      size += std::fabs(product);
      ++terms;
    }
    if (rule.addend_last) sum += addend;
    if (rule.bf16_sums) return {.exact = sum};
    return Around(sum, size, terms + 1);
  }

  const MatrixView<const float> rows_;
  const Integers& source_;
  const Floats* weights_;
  const Floats* addend_;
  const Floats& output_;
  const Grid grid_;
  std::vector<std::vector<size_t>> of_token_;
};

struct CombineMistake {
  const char* name;
  const char* sentence;
  CombineRule rule;
  bool needs_weights = false;
  bool needs_addend = false;
};
const CombineMistake kCombineMistakes[] = {
    {"sums_bf16",
     "sums were rounded to BF16 on the way",
     {.bf16_sums = true, .bf16_products = false}},
    {"sums_and_products_bf16",
     "products and sums were rounded to BF16 on the way",
     {.bf16_sums = true, .bf16_products = true}},
    {"sums_bf16_addend_last",
     "sums were rounded to BF16 on the way, and the addend came last",
     {.bf16_sums = true, .addend_last = true},
     false,
     true},
    {"products_and_sums_bf16_addend_last",
     "products and sums were rounded to BF16, and the addend came last",
     {.bf16_sums = true, .bf16_products = true, .addend_last = true},
     false,
     true},
    {"products_bf16",
     "products of weights and rows were rounded to BF16",
     {.bf16_products = true}},
    {"slot_missing_first",
     "the first row of each token was left out",
     {.skip = CombineRule::Skip::kFirst}},
    {"slot_missing_last",
     "the last row of each token was left out",
     {.skip = CombineRule::Skip::kLast}},
    {"weight_missing",
     "rows were added without their weights",
     {.weights = false},
     true},
    {"addend_missing", "the addend was not added", {.addends = 0}, false, true},
    {"addend_twice", "the addend was added twice", {.addends = 2}, false, true},
};

/// Each expert's rows left out, if it is known which they are.
constexpr size_t kMostExperts = 256;

std::vector<Trial> CombineTrials(const Combine& combine,
                                 const Integers* group_ends) {
  std::vector<Trial> trials;
  for (const CombineMistake& mistake : kCombineMistakes) {
    if (mistake.needs_weights && !combine.has_weights()) continue;
    if (mistake.needs_addend && !combine.has_addend()) continue;
    trials.push_back({mistake.name, mistake.sentence, [&combine, &mistake] {
                        return std::optional(combine.Compare(mistake.rule));
                      }});
  }
  if (group_ends == nullptr || group_ends->values.size() > kMostExperts) {
    return trials;
  }
  int64_t begin = 0;
  for (size_t e = 0; e < group_ends->values.size(); ++e) {
    CombineRule rule;
    rule.skip_begin = static_cast<size_t>(begin);
    rule.skip_end = static_cast<size_t>(group_ends->values[e]);
    begin = group_ends->values[e];
    if (rule.skip_begin == rule.skip_end) continue;
    trials.push_back(
        {"expert_missing",
         "the rows of expert " + std::to_string(e) + " were left out",
         [&combine, rule] { return std::optional(combine.Compare(rule)); }});
  }
  return trials;
}

}  // namespace

void CheckDispatch(const OperationCase& given, std::vector<Finding>& findings) {
  const MatrixView<const float> rows = given.operation.Find("rows")->Rows();
  const MatrixView<const float> tokens = given.operation.Find("tokens")->Rows();
  const Integers& source = *given.operation.FindIntegers("source");
  Finding finding = FindingOf(
      given, "rows", "rows",
      CompareRows(rows, tokens, [&](size_t m) { return source.values[m]; }));
  Explain(DispatchTrials(rows, tokens, source), finding);
  // It covers shifts, too, so that it comes after them.
  if (!finding.explanation) {
    Explain({{"wrong_token", "rows are those of other tokens",
              [&] {
                const std::vector<int64_t> found = TokensByBits(rows, tokens);
                return std::optional(CompareRows(
                    rows, tokens, [&found](size_t m) { return found[m]; }));
              }}},
            finding);
  }
  findings.push_back(std::move(finding));
}

void CheckCombine(const OperationCase& given, const Integers* group_ends,
                  std::vector<Finding>& findings) {
  const Combine combine(given);
  Finding finding = FindingOf(given, "output", "output", combine.Compare({}));
  Explain(CombineTrials(combine, group_ends), finding);
  findings.push_back(std::move(finding));
}

}  // namespace isoloss::operations
