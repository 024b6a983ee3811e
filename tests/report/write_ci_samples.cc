// Writes the sample reports in every format for CI systems, which parsers of
// others then read (tests/cli/ci_formats_test.py):
//
//   write_ci_samples FOLDER
//
// makes FOLDER/sample-junit.xml, FOLDER/hostile-junit.xml, ….
#include <fstream>
#include <string>

#include "isoloss/report/github.h"
#include "isoloss/report/junit.h"
#include "isoloss/report/markdown.h"
#include "report/ci_samples.h"

int main(int argc, char** argv) {
  namespace report = isoloss::report;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
  };
  const auto write_all = [&](const std::string& name,
                             const report::CiReport& of) {
    write(name + "-junit.xml", report::RenderJunit(of));
    write(name + "-summary.md", report::RenderMarkdown(of));
    write(name + "-annotations.txt", report::RenderGithubAnnotations(of));
  };
  write_all("sample", report::testing::SampleReport());
  write_all("hostile", report::testing::HostileReport());
  return 0;
}
