#include "isoloss/operations/combine.h"

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "isoloss/operations/rows.h"

namespace isoloss::operations {
namespace {

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
    {"routed_bf16",
     "the sum of the rows was rounded to BF16, and then the addend was added",
     {.addend_last = true, .bf16_routed = true},
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
     {.weights = 0},
     true},
    {"weights_twice",
     "rows were multiplied by their weights twice",
     {.weights = 2},
     true},
    {"weights_reversed",
     "rows of each token had the weights of its rows in reverse order",
     {.weights_reversed = true},
     true},
    {"rows_shifted", "each row was that of the place after it", {.shift = 1}},
    {"rows_shifted_back",
     "each row was that of the place before it",
     {.shift = CombineRule::kBack}},
    {"source_shifted",
     "each row and its weight went to the token of the place before it",
     {.shift = 1, .shifts_weights = true},
     true},
    {"source_shifted_back",
     "each row and its weight went to the token of the place after it",
     {.shift = CombineRule::kBack, .shifts_weights = true},
     true},
    {"addend_missing", "the addend was not added", {.addends = 0}, false, true},
    {"addend_twice", "the addend was added twice", {.addends = 2}, false, true},
};

/// If the experts' rows are known, leaving out each expert's rows is tried, for
/// this many experts.
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

/// Returns "of token 3 ", or "" if the places are all `tokens`.
std::string OfTokens(const std::vector<size_t>& places, size_t tokens) {
  if (places.size() == tokens) return "";
  return fmt::format("of token{} {} ", places.size() == 1 ? "" : "s",
                     FirstFew(places));
}

}  // namespace

std::vector<Fit> Combine::Fits(const std::vector<bool>& wrong) const {
  FactorRange routed, addend, both;
  // Products are rounded twice more if they are multiplied by another number.
  CombineRule doubled;
  doubled.routed = 2.0;
  for (size_t t = 0; t < wrong.size(); ++t) {
    for (size_t d = 0; wrong[t] && d < rows_.cols(); ++d) {
      const float output = output_.Rows()(t, d);
      const double once = Addend(t, d);
      const oracle::Estimate sum = Sum(doubled, t, d);
      const double rows = (sum.exact - once) / 2;
      routed.Add(rows, once, output, grid_, sum.bound);
      addend.Add(once, rows, output, grid_, sum.bound);
      both.Add(rows + once, 0.0, output, grid_, sum.bound);
    }
  }
  const std::string whose = OfTokens(MarkedRows(wrong), tokens());
  const auto fit = [&](const char* name, const FactorRange& range,
                       const char* sentence, bool of_rows, bool of_addend) {
    return Fit{.name = name,
               .range = range,
               .not_zero = true,
               .sentence =
                   [sentence, whose](double factor) {
                     return fmt::format(fmt::runtime(sentence), whose, factor);
                   },
               .compare =
                   [this, of_rows, of_addend, wrong](double factor) {
                     CombineRule rule;
                     if (of_rows) rule.routed = factor;
                     if (of_addend) rule.addends = factor;
                     return Compare(rule, {}, &wrong);
                   }};
  };
  std::vector<Fit> fits = {
      fit("routed_scaled", routed,
          "the routed part {}was {:.9g} times what weights and rows give", true,
          false)};
  if (addend_ == nullptr) return fits;
  fits.push_back(fit("addend_scaled", addend,
                     "the addend {}was added {:.9g} times", false, true));
  fits.push_back(fit("output_scaled", both,
                     "the output {}was {:.9g} times what addend, weights and "
                     "rows give",
                     true, true));
  return fits;
}

void CheckCombine(const OperationCase& given, const Integers* group_ends,
                  std::vector<Finding>& findings) {
  const Combine combine(given);
  Finding finding = FindingOf(given, "output", "output", combine.Compare({}));
  finding.places = PlacesOf(finding.comparison, combine.tokens(), "tokens");
  Explain(CombineTrials(combine, group_ends), finding, [&] {
    std::vector<Trial> trials =
        Confirmed(combine.Fits(finding.comparison.wrong_rows()));
    std::ranges::move(TrialsOfTokens(combine, finding.comparison.wrong_rows()),
                      std::back_inserter(trials));
    return trials;
  });
  findings.push_back(std::move(finding));
}

}  // namespace isoloss::operations
