#include "isoloss/report/sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace isoloss::report {
namespace {

using sites::Findings;
using sites::Product;
using sites::ProductFinding;
using sites::SetFinding;
using sites::Statement;

constexpr double kMilli = 1e3;
constexpr double kNano = 1e9;

std::string PercentText(const Statement& statement, double nats) {
  if (!std::isfinite(nats)) return "none";
  return fmt::format("{:+.3f}", statement.Percent(nats));
}

constexpr int kPercentColumn = 7;

/// "+0.012 [-0.030, +0.054]", percent of the baseline's loss; each number in
/// `width` columns.
std::string PercentInterval(const Statement& statement,
                            const stats::MeanInterval& interval,
                            int width = 0) {
  return fmt::format("{:>{}} [{:>{}}, {:>{}}]",
                     PercentText(statement, interval.mean), width,
                     PercentText(statement, interval.lower), width,
                     PercentText(statement, interval.upper), width);
}

std::string ErrorText(const std::optional<double>& error) {
  return error && std::isfinite(*error) ? fmt::format("{:.2g}", *error) : "-";
}

std::string GrowthText(const Product& product) {
  if (!product.first_error || !product.last_error) return "-";
  const double growth = *product.last_error / *product.first_error;
  return std::isfinite(growth) ? fmt::format("{:.2f}", growth) : "-";
}

std::string ProductRow(const Statement& statement,
                       const ProductFinding& finding) {
  const Product& product = statement.products[finding.product];
  std::string row = fmt::format(
      "{:<26}",
      product.Name() + (finding.adjusted < sites::kHarmful ? " *" : ""));
  row += finding.unstable
             ? fmt::format("{:>26}", "no finite loss")
             : fmt::format("{:>26}", PercentInterval(statement, finding.harm,
                                                     kPercentColumn));
  row += fmt::format(" {:>7} {:>7} {:>6.2g} {:>8} {:>6}",
                     PercentText(statement, finding.only.mean),
                     PercentText(statement, finding.all_but.mean),
                     finding.adjusted, ErrorText(product.first_error),
                     GrowthText(product));
  for (const sites::Share& share : product.shares) {
    row += fmt::format(" {:>5.1f}/{:<4.1f}", 100 * share.flops,
                       100 * share.bytes_saved);
  }
  return row + fmt::format(" {:>8.2f}\n", kNano * product.saved_seconds);
}

std::string RankingText(const Statement& statement) {
  std::string text = fmt::format("{:<26}{:>26} {:>7} {:>7} {:>6} {:>8} {:>6}",
                                 "product", "harm % [95 %]", "alone %",
                                 "left %", "p adj.", "gradient", "growth");
  if (!statement.products.empty()) {
    for (const sites::Share& share : statement.products.front().shares) {
      text += fmt::format(" {:>10}", share.model);
    }
  }
  text += fmt::format(" {:>8}\n", "ns saved");
  for (const ProductFinding& finding : statement.findings.ranked) {
    text += ProductRow(statement, finding);
  }
  return text +
         fmt::format(
             "harm: what the product adds to the loss, by an additive model of "
             "all arms; alone: loss with it alone - {}; left: loss of all - "
             "loss of all but it. Percent of the baseline's loss.\n"
             "*: above 0 with p < {:g}, adjusted for {} products (Benjamini "
             "and Hochberg). Each interval holds with 95 % on its own.\n"
             "gradient: relative error of the whole gradient with the product "
             "alone at step 1; growth: at step {} over that of step 1.\n"
             "Then its share of a model's operations / share of all operand "
             "bytes that it saves, percent; and what it saves of a token of "
             "{}.\n",
             statement.baseline, sites::kHarmful, statement.products.size(),
             statement.steps, statement.speed.work().name);
}

std::string SpeedText(const Statement& statement) {
  const sites::SpeedModel& speed = statement.speed;
  std::string text = fmt::format(
      "\nSpeed model of {} on {}, milliseconds of a token on one GPU: products "
      "{:.3f}, exchange {:.3f} (DeepEP {:.3f}), rest {:.3f}.\n",
      speed.work().name, speed.hardware().name, kMilli * speed.GemmSeconds(),
      kMilli * speed.ExchangeSeconds(sites::Dispatch::kStandard),
      kMilli * speed.ExchangeSeconds(sites::Dispatch::kDeepep),
      kMilli * speed.RestSeconds());
  for (const sites::SpeedTry& tried : speed.Tries()) {
    text += fmt::format("  {:<24} published {:>4.0f} tokens/s, model {:>4.0f}",
                        tried.run.name, tried.run.tokens_per_second,
                        tried.predicted);
    if (tried.fitted) {
      text += ": the rest is fitted to it\n";
      continue;
    }
    text +=
        fmt::format(" ({:+.1f} %; {:.0f} if a token's experts share a rank)\n",
                    100 * (tried.predicted / tried.run.tokens_per_second - 1),
                    tried.predicted_one_rank);
  }
  return text;
}

std::string SetText(const Statement& statement, const SetFinding& finding) {
  std::string text = fmt::format(
      "  {:<28} {:>3} products {:>7.4f}x  predicted {}", finding.set.name,
      finding.set.products.size(), finding.speed_up,
      PercentInterval(statement, finding.predicted, kPercentColumn));
  if (finding.measured) {
    text += "  measured " +
            PercentInterval(statement, *finding.measured, kPercentColumn);
  }
  return text + "\n";
}

std::string CheckText(const Statement& statement, const SetFinding& recipe) {
  if (!recipe.measured) return "";
  if (!std::isfinite(recipe.measured->mean)) {
    return "Trained, a run of it did not end with a finite loss.\n";
  }
  const stats::MeanInterval& difference = *recipe.difference;
  const double reach = (difference.upper - difference.lower) / 2;
  return fmt::format(
      "Trained with seeds that did not choose it, it has the gap {} %, {}. "
      "Measured - predicted: {} %: {} the interval. The seeds tell differences "
      "of about {:.3f} %.\n",
      PercentInterval(statement, *recipe.measured),
      recipe.safe(statement.findings.margin_nats)
          ? "below the margin with its upper end"
          : "which is not shown to be below the margin",
      PercentInterval(statement, difference),
      recipe.inside() ? "0 is inside" : "0 is outside",
      statement.Percent(reach));
}

std::string RecipeOfSites(const Statement& statement) {
  const Findings& findings = statement.findings;
  if (!findings.recipe) {
    return fmt::format(
        "\nNo set of products that makes a step faster has a predicted gap "
        "whose upper end lies below {:g} %, so there is no recipe.\n",
        statement.margin_percent);
  }
  const SetFinding& recipe = *findings.recipe;
  return fmt::format(
             "\nRecipe ({}): {} of {} products, {:.4f} times as fast, "
             "predicted gap "
             "{} %, below {:g} % with its upper end.\n",
             recipe.set.name, recipe.set.products.size(),
             statement.products.size(), recipe.speed_up,
             PercentInterval(statement, recipe.predicted),
             statement.margin_percent) +
         CheckText(statement, recipe);
}

}  // namespace

std::string RenderSites(const Statement& statement) {
  const Findings& findings = statement.findings;
  std::string text = fmt::format(
      "Sites of arm {} ({}) against {}: {} products, {} seeds of {} steps, {} "
      "runs; the baseline ends at {:.4f} nats.\n\n",
      statement.arm, statement.candidate, statement.baseline,
      statement.products.size(), findings.seeds, statement.steps,
      statement.runs, findings.baseline_loss);
  text += RankingText(statement);
  text += SpeedText(statement);
  text += "\nSets, which fit nothing but \"every product\"; gap in percent:\n";
  for (const SetFinding& set : findings.sets) text += SetText(statement, set);
  text +=
      "\nFrontier: products whose harm is not told apart from 0 by descending "
      "time "
      "that they save, then the others by ascending harm for it\n";
  for (const SetFinding& step : findings.frontier) {
    text += SetText(statement, step);
  }
  text += RecipeOfSites(statement);
  for (const std::string& note : findings.notes) text += note + "\n";
  for (const std::string& note : statement.notes) text += note + "\n";
  return text;
}

}  // namespace isoloss::report
