/* Python itself, with its whole heap in the pool: a program that knows nothing of Bedplate. */
int Py_BytesMain(int count, char** words);

int main(int count, char** words) { return Py_BytesMain(count, words); }
