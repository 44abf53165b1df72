// A program's own fork rule: its children share its heap.
extern "C" const char* const bedplate_fork = "share";
