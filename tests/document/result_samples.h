// Reports for CI systems that tests render: one of each status, and one whose
// every text is hostile.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/document/result.h"

namespace isoloss::document::testing {

using namespace std::string_literals;

inline Check SampleCase(std::string group, std::string name, Status status) {
  return {.group = std::move(group),
          .name = std::move(name),
          .title = "",
          .status = status,
          .statement = "it was measured"};
}

/// Two suites; the first has no two counts equal: of ten cases, the verdict
/// among them, four are failures, two errors and three skipped.
inline Report SampleReport() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Result failing{.name = "e: mxfp8 against bf16",
                 .file = "e/experiment.toml",
                 .status = Status::kFailure,
                 .outcome = "FAIL",
                 .exit_code = 1,
                 .headline = "mxfp8 is worse than bf16",
                 .reasons = {"final loss +0.4 %"},
                 .could_have_seen = {"0.1 % or more"},
                 .holds_for = {"4 seeds"},
                 .next = {"isoloss compare"},
                 .warnings = {"few tokens"},
                 .facts = {{"question", "precision"}}};
  failing.checks = {SampleCase("L0", "complete", Status::kPass),
                    SampleCase("L1", "first", Status::kNoticed),
                    SampleCase("L1", "second", Status::kNoticed),
                    SampleCase("L2", "level", Status::kSkipped),
                    SampleCase("L3", "valid", Status::kError),
                    SampleCase("L3", "readable", Status::kError),
                    SampleCase("L4", "early_window", Status::kFailure),
                    SampleCase("L5", "final_window", Status::kFailure),
                    SampleCase("L5", "held_out", Status::kInconclusive)};
  failing.checks[4].numbers = {
      {"statistic", std::numeric_limits<double>::quiet_NaN(), "nats"},
      {"limit", kInfinity, "nats"},
      {"lower", -kInfinity, "nats"}};
  Check& final_window = failing.checks[7];
  final_window.title = "final loss";
  final_window.numbers = {{"statistic", 0.4, "%"},
                          {"limit", 0.25, "%"},
                          {"lower", 0.35, "%"},
                          {"upper", 0.45, "%"},
                          {"coverage", 0.9, ""}};
  final_window.evidence = "4 seed pairs";
  final_window.findings = {"seed 1", "seed 2"};
  final_window.next = "look at seed 1";

  Result passing{.name = "e: null against bf16",
                 .file = "",
                 .status = Status::kPass,
                 .outcome = "PASS",
                 .exit_code = 0,
                 .headline = "null ends like bf16"};
  passing.checks = {SampleCase("L0", "complete", Status::kPass)};
  return MakeReport("isoloss verify", 1, {failing, passing});
}

/// What names, paths and messages may hold: markup of every format, commands,
/// mentions, links, line ends, controls, and bytes that are no UTF-8.
inline const std::string kHostile =
    "<script>alert(1)</script> ]]> <!-- --> &amp; \"q\" 'x' |a|b| `t` ```\n"
    "::error file=a::boo\n##[error]boo\r\n%0A%25 @octocat a@b.example #1 !2 "
    "GH-3 [l](https://e.example) https://e.example www.e.example **b** _i_ "
    "~~s~~ $x$ \\ \x1b[31m \x01\x7f \xff\xfe \xe2\x80\xae \xef\xbf\xbe "
    "\xef\xbf\xbf \xf0\x9f\x98\x80\0 end"s;

/// Texts that would begin a list, a heading or a block of code.
inline const std::vector<std::string> kBlocks = {
    "- a", "1. b", "+ c", "    d", "# e", "> f", "~~~", "=== g", "2) h"};

/// All of it in each text, fourteen failures, and names that come twice.
inline Report HostileReport() {
  Result suite{.name = kHostile,
               .file = "a,b:c=d%2C/" + kHostile,
               .status = Status::kFailure,
               .outcome = kHostile,
               .exit_code = 1,
               .headline = kHostile,
               .reasons = kBlocks,
               .could_have_seen = {kHostile},
               .holds_for = {kHostile},
               .next = {kHostile},
               .warnings = {kHostile},
               .facts = {{kHostile, kHostile}}};
  for (int i = 0; i < 14; ++i) {
    suite.checks.push_back({.group = kHostile,
                            .name = kHostile,
                            .title = kHostile,
                            .status = Status::kFailure,
                            .statement = kHostile,
                            .numbers = {{"statistic", 1, kHostile}},
                            .evidence = kHostile,
                            .findings = {kHostile, kHostile},
                            .next = kHostile});
  }
  Result second = suite;
  second.checks.resize(1);
  second.checks[0].statement = std::string(300000, 'x') + kHostile;
  return MakeReport("isoloss verify", 1, {suite, second});
}

}  // namespace isoloss::document::testing
