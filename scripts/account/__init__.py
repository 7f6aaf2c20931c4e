"""The AWS account as the verbs meet it: who is signed in, what is there, whose it is, what it costs, how it goes."""
