// Leaves a sample checkpoint in the folder that is named, for another program.
#include "samples.h"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  isoloss::checkpoint::WriteSample(arguments[1], 120);
}
