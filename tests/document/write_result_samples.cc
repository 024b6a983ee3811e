// Writes the sample reports in every format for CI systems, which parsers of
// others then read (tests/cli/ci_formats_test.py):
//
//   write_result_samples FOLDER
//
// makes FOLDER/sample-junit.xml, FOLDER/hostile-junit.xml, ….
#include <fstream>
#include <string>

#include "isoloss/document/github.h"
#include "isoloss/document/junit.h"
#include "isoloss/document/markdown.h"
#include "result_samples.h"

int main(int argc, char** argv) {
  namespace document = isoloss::document;
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name, std::ios::binary) << text;
  };
  const auto write_all = [&](const std::string& name,
                             const document::Report& of) {
    write(name + "-junit.xml", document::RenderJunit(of));
    write(name + "-summary.md", document::RenderMarkdown(of));
    write(name + "-annotations.txt", document::RenderGithubAnnotations(of));
  };
  write_all("sample", document::testing::SampleReport());
  write_all("hostile", document::testing::HostileReport());
  return 0;
}
