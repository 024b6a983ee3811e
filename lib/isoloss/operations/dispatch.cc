// Checks rows that travel to experts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/operations/check.h"
#include "isoloss/operations/estimates.h"
#include "isoloss/operations/fit.h"
#include "isoloss/operations/rows.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/precision/operands.h"

namespace isoloss::operations {
namespace {

using oracle::Comparison;
using oracle::Grid;

/// Row m must be row `token(m)` of `tokens`; if that is -1, zero of any sign.
Comparison CompareRows(const MatrixView<const float>& rows,
                       const MatrixView<const float>& tokens,
                       const std::function<int64_t(size_t)>& token) {
  Comparison comparison(Grid::kFp32);
  for (size_t m = 0; m < rows.rows(); ++m) {
    const int64_t t = token(m);
    for (size_t d = 0; d < rows.cols(); ++d) {
      const float wanted = t >= 0 ? tokens(static_cast<size_t>(t), d)
                           : rows(m, d) == 0.0f ? rows(m, d)
                                                : 0.0f;
      comparison.AddExact(m, d, rows(m, d), wanted);
    }
  }
  return comparison;
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

/// Returns a fit of the wrong rows' factor; products are rounded as rows are.
Fit RowFit(const MatrixView<const float>& rows,
           const MatrixView<const float>& tokens, const Integers& source,
           Grid grid, const std::vector<bool>& wrong) {
  const auto for_each = [&rows, &tokens, &source, wrong](const auto& use) {
    for (size_t m = 0; m < rows.rows(); ++m) {
      const float* token = tokens.Row(static_cast<size_t>(source.values[m]));
      const bool is_wrong = Marks(wrong, m);
      for (size_t d = 0; d < rows.cols(); ++d) {
        use(m, d, static_cast<double>(token[d]), is_wrong);
      }
    }
  };
  const std::vector<size_t> places = MarkedRows(wrong);
  const std::string which =
      places.size() == rows.rows() ? "" : FirstFew(places) + " ";
  Fit fit;
  fit.name = "rows_scaled";
  fit.sentence = [which](double factor) {
    return fmt::format("rows {}were {:.9g} times their tokens", which, factor);
  };
  fit.not_zero = true;
  fit.compare = [&rows, grid, for_each](double factor) {
    Comparison comparison(grid);
    for_each([&](size_t m, size_t d, double once, bool is_wrong) {
      const double scaled = is_wrong ? factor * once : once;
      comparison.Add(m, d, rows(m, d), Around(scaled, std::fabs(scaled), 1));
    });
    return comparison;
  };
  for_each([&](size_t m, size_t d, double once, bool is_wrong) {
    if (!is_wrong) return;
    fit.range.Add(once, 0.0, rows(m, d), grid,
                  oracle::kUnitRoundoff * std::fabs(once));
  });
  return fit;
}

/// Explains rows that are zero or another token's. Bits tell tokens apart.
std::vector<Trial> RowTrials(const MatrixView<const float>& rows,
                             const MatrixView<const float>& tokens,
                             const Integers& source,
                             const std::vector<bool>& wrong) {
  const auto text = [](const MatrixView<const float>& matrix, size_t row) {
    return std::string_view(reinterpret_cast<const char*>(matrix.Row(row)),
                            matrix.cols() * sizeof(float));
  };
  std::unordered_map<std::string_view, int64_t> by_bits;
  for (size_t t = 0; t < tokens.rows(); ++t) {
    by_bits.emplace(text(tokens, t), static_cast<int64_t>(t));
  }
  std::vector<int64_t> found = source.values;
  std::vector<size_t> others, their_tokens, zeros;
  for (size_t m = 0; m < wrong.size(); ++m) {
    if (!wrong[m]) continue;
    const float* row = rows.Row(m);
    const auto place = by_bits.find(text(rows, m));
    if (std::all_of(row, row + rows.cols(), [](float v) { return v == 0; })) {
      found[m] = -1;
      zeros.push_back(m);
    } else if (place != by_bits.end()) {
      found[m] = place->second;
      others.push_back(m);
      their_tokens.push_back(static_cast<size_t>(place->second));
    }
  }
  std::string sentence;
  if (!others.empty()) {
    sentence = fmt::format("rows {} are those of tokens {}", FirstFew(others),
                           FirstFew(their_tokens));
  }
  if (!zeros.empty()) {
    sentence += fmt::format("{}rows {} are zero", sentence.empty() ? "" : "; ",
                            FirstFew(zeros));
  }
  if (sentence.empty()) return {};
  return {{others.empty() ? "rows_zero" : "wrong_token", sentence,
           [&rows, &tokens, found] {
             return std::optional(CompareRows(
                 rows, tokens, [&found](size_t m) { return found[m]; }));
           }}};
}

}  // namespace

void CheckDispatch(const OperationCase& given, std::vector<Finding>& findings) {
  const MatrixView<const float> rows = given.operation.Find("rows")->Rows();
  const MatrixView<const float> tokens = given.operation.Find("tokens")->Rows();
  const Integers& source = *given.operation.FindIntegers("source");
  const Grid grid = GridOf(*given.operation.Find("rows"), "rows", given.where);
  Finding finding = FindingOf(
      given, "rows", "rows",
      CompareRows(rows, tokens, [&](size_t m) { return source.values[m]; }));
  finding.places = PlacesOf(finding.comparison, rows.rows(), "rows");
  Explain(DispatchTrials(rows, tokens, source), finding, [&] {
    std::vector<Trial> trials =
        RowTrials(rows, tokens, source, finding.comparison.wrong_rows());
    std::ranges::move(Confirmed({RowFit(rows, tokens, source, grid,
                                        finding.comparison.wrong_rows())}),
                      std::back_inserter(trials));
    return trials;
  });
  findings.push_back(std::move(finding));
}

}  // namespace isoloss::operations
